"""Videos whose text is known: the texts that OCR finds in them, and their times.

`python -m bench.truth` gives the figures of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.media.made_up import ALL, CAPTIONS_40, MadeUp
from tests.media.truth import Judged, judge, read_back, score

DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
QUICK = ("slide", "table", "price", "two_at_once", "comes_back")


def missed(judgements: list[Judged]) -> str:
    """Return the missed lines, for a failure message."""
    return "\n".join(map(str, (one for one in judgements if not (one.is_whole and one.is_on_time))))


@pytest.mark.timeout(900)
async def test_what_is_on_screen_is_found_and_when_it_is_there(
    video: Callable[[str], MadeUp], tmp_path: Path
) -> None:  # one test, so that two processes never do the work twice
    videos = [video(name) for name in (*(ALL if DEEP else QUICK), CAPTIONS_40)]
    read_texts = await read_back(videos, tmp_path)
    judgements = {video.name: judge(video, read_texts[video.name].ranges) for video in videos}
    every = [one for lines in judgements.values() for one in lines]
    assert score(every).recall >= 0.92, missed(every)
    assert score(every).on_time_share >= 0.9, missed(every)
    assert len(judgements[CAPTIONS_40]) == 40
    assert score(judgements[CAPTIONS_40]).whole >= 38, missed(judgements[CAPTIONS_40])
    assert all(one.is_whole and one.is_on_time for one in judgements["price"]), missed(judgements["price"])


def test_a_video_in_which_nothing_was_read_scores_nothing(video: Callable[[str], MadeUp]) -> None:
    nothing = score(judge(video("price"), []))
    assert (nothing.recall, nothing.on_time, nothing.whole) == (0.0, 0, 0)
    assert nothing.timed == 3
