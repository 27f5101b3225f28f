"""A worker that stops for ever at the end of a stage, with all of its writes done and its job not yet settled.

CORTANA_STALL names the stage; the file CORTANA_MARK appears then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from callsheet import Callsheet
from callsheet.app.video import add_video
from callsheet.contracts.cortana import tasks

PARTS = {"transcode": "make", "sample": "take", "ocr": "read", "segment_index": "index"}


def _stalled(work: Callable[..., Any]) -> Callable[..., Any]:
    async def stalled(*args: Any) -> Any:
        outcome = await work(*args)
        Path(os.environ["CORTANA_MARK"]).touch()
        await asyncio.sleep(3600)
        return outcome

    return stalled


if name := PARTS.get(os.environ.get("CORTANA_STALL", "")):
    setattr(tasks, name, _stalled(getattr(tasks, name)))
app = Callsheet()
add_video(app)
