"""Videos whose text is known: what is found in them, and when. `python -m bench.truth` gives the figures of each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.media.made_up import ALL, CAPTIONS_40, MadeUp
from tests.media.truth import Judged, judge, read_back, score

DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
QUICK = ("slide", "table", "price", "two_at_once", "comes_back")  # all: 1 min on two cores


@pytest.fixture(scope="module")
def judged(video: Callable[[str], MadeUp], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Judged]]:
    videos = [video(name) for name in (*(ALL if DEEP else QUICK), CAPTIONS_40)]
    found = asyncio.run(read_back(videos, tmp_path_factory.mktemp("frames")))
    return {video.name: judge(video, found[video.name].ranges) for video in videos}


def missed(judged: list[Judged]) -> str:
    """For the message of a test that fails."""
    return "\n".join(map(str, (one for one in judged if not (one.is_whole and one.is_on_time))))


@pytest.mark.timeout(900)
def test_the_words_on_screen_are_found(judged: dict[str, list[Judged]]) -> None:
    every = [one for lines in judged.values() for one in lines]
    assert score(every).recall >= 0.92, missed(every)


@pytest.mark.timeout(900)
def test_text_is_found_when_it_is_there(judged: dict[str, list[Judged]]) -> None:
    every = [one for lines in judged.values() for one in lines]
    assert score(every).on_time_share >= 0.9, missed(every)


@pytest.mark.timeout(900)
def test_nearly_all_of_forty_captions_are_found(judged: dict[str, list[Judged]]) -> None:
    assert len(judged[CAPTIONS_40]) == 40
    assert score(judged[CAPTIONS_40]).whole >= 38, missed(judged[CAPTIONS_40])


@pytest.mark.skipif(DEEP, reason="all of them are looked at above")
def test_a_price_that_changes_is_two_texts(judged: dict[str, list[Judged]]) -> None:
    assert all(one.is_whole and one.is_on_time for one in judged["price"]), missed(judged["price"])


def test_the_measure_can_fail(video: Callable[[str], MadeUp], tmp_path: Path) -> None:
    price = video("price")
    nothing = judge(price, [])
    assert (score(nothing).recall, score(nothing).on_time) == (0.0, 0)
