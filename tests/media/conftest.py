from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

from callsheet.media.ffmpeg import LIMITS, Ffmpeg
from tests.media.corpus import Corpus
from tests.media.made_up import MadeUp, made_up


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def how() -> Ffmpeg:
    return Ffmpeg.default(limits=LIMITS._replace(nice=0))  # others are at work on the same cores


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], MadeUp]:
    """Return a made-up video by name; made once per session, whatever the number of processes that run it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made_up"
    folder.mkdir(exist_ok=True)
    return partial(made_up, folder=folder)
