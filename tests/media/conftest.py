from __future__ import annotations

import pytest

from callsheet.media.ffmpeg import LIMITS, Ffmpeg
from tests.media.corpus import Corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def how() -> Ffmpeg:
    return Ffmpeg.found(limits=LIMITS._replace(nice=0))  # others are at work on the same cores
