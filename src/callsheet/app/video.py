"""Video search for an app: the contract's tasks with the app's own catalogue and objects."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from callsheet.contracts.cortana.parts import Parts
from callsheet.contracts.cortana.tasks import add_tasks

if TYPE_CHECKING:
    from callsheet.worker.pipeline import Pipeline

    from .application import Callsheet

PIPELINE_LOGS = "CALLSHEET_PIPELINE_LOGS"
ON = ("1", "true", "t", "yes", "y", "on")  # as click reads a switch


def add_video(app: Callsheet, *, ocr_engine: str = "") -> Pipeline:
    """Declare `video.transcode` to `video.segment_index` and `video.clip_generate`."""

    async def parts() -> Parts:
        engine = ocr_engine or os.environ.get("CALLSHEET_OCR_ENGINE", "tesseract")
        keep_logs = os.environ.get(PIPELINE_LOGS, "").lower() in ON
        return Parts(await app.catalog(), ocr_engine=engine, keep_logs=keep_logs)

    return add_tasks(app, parts)
