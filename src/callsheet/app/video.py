"""Video search for an app: the contract's tasks with the app's own catalogue and objects."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from callsheet.contracts.cortana.parts import Parts
from callsheet.contracts.cortana.tasks import add_tasks

if TYPE_CHECKING:
    from callsheet.worker.pipeline import Pipeline

    from .application import Callsheet


def add_video(app: Callsheet, *, ocr_engine: str = "") -> Pipeline:
    """Declare `video.transcode` to `video.segment_index` and `video.clip_generate`."""

    async def parts() -> Parts:
        engine = ocr_engine or os.environ.get("CALLSHEET_OCR_ENGINE", "tesseract")
        return Parts(await app.catalog(), await app.objects(), ocr_engine=engine)

    return add_tasks(app, parts)
