"""An app with the transcoding task, for worker programs.

EUTERPE_STALL names a stage in which the worker hangs, so that a test can kill it there.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from callsheet.app import Callsheet
from callsheet.app.transcoding import add_transcoding
from callsheet.media.ffmpeg import Ffmpeg, Work
from callsheet.objects.folder import FolderObjects
from tests.outbox.sink import RULES

put, command = FolderObjects.put_file, Ffmpeg.command


async def put_and_wait(self: FolderObjects, key: str, *args: Any, **options: Any) -> Any:
    await put(self, key, *args, **options)
    await asyncio.Event().wait()


def command_in_real_time(self: Ffmpeg, work: Work) -> list[str]:
    line = command(self, work)
    return [*line[: line.index("-i")], "-re", *line[line.index("-i") :]]


match os.environ.get("EUTERPE_STALL"):
    case "processing":
        Ffmpeg.command = command_in_real_time  # type: ignore[method-assign]
    case "uploading":
        FolderObjects.put_file = put_and_wait  # type: ignore[method-assign, assignment]

app = Callsheet()
add_transcoding(app, RULES)
