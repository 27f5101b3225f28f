"""Uploads of files in parts, to URLs that the server signs.

The server stores a part completely or not at all. After a lost connection, or in another process, the client asks the
server for the missing parts and sends only these.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from callsheet.kernel.errors import CallsheetError, InvalidInput

from .errors import ApiError, ServerUnreachable, UnexpectedAnswer
from .patience import Pauses
from .records import Part, Upload
from .transport import Transport

CHUNK_BYTES = 256 * 1024

OnUpload = Callable[[Upload], object]


def upload_path(upload_id: str, rest: str = "") -> str:
    """Return the URL path of an upload."""
    return f"/v1/uploads/{quote(upload_id, safe='')}{rest}"


def ignore_progress(upload: Upload) -> None:
    """Ignore upload progress; the default of `on_progress`."""


async def send_all(transport: Transport, path: Path, upload: Upload, on_progress: OnUpload) -> None:
    """Send all parts that the server lacks; raise InvalidInput if the file's size differs from the upload's."""
    with path.open("rb") as file:
        _check_size(file, upload)
        pauses = Pauses(transport.patience, transport.patience.retry_for_s)
        while upload.todo:
            trouble = await _send_parts(transport, file, upload, on_progress)
            before, upload = upload.received, Upload.read(await transport.get(upload_path(upload.upload_id)))
            if upload.received > before or not upload.todo:
                pauses.on_connection()
                pauses.moved_on()
            else:
                await pauses.after(trouble)
    on_progress(upload)


async def _send_parts(transport: Transport, file: BinaryIO, upload: Upload, on_progress: OnUpload) -> CallsheetError:
    """Send the missing parts until one fails; return the error to raise if the server received none of them."""
    for part in upload.todo:
        try:
            await transport.send(part, _pieces(file, part, upload, on_progress))
        except (ServerUnreachable, ApiError) as trouble:  # all errors may be temporary: the next answer has fresh URLs
            return trouble
        upload = upload._replace(received=upload.received + part.size)
    return UnexpectedAnswer("parts were taken, and the server says that they did not arrive")


async def _pieces(file: BinaryIO, part: Part, upload: Upload, on_progress: OnUpload) -> AsyncIterator[bytes]:
    """Yield a part in chunks of 256 KiB, so that a large part needs little memory and reports progress."""
    file.seek(part.offset)
    left = part.size
    on_progress(upload)
    while left:
        piece = await asyncio.to_thread(file.read, min(CHUNK_BYTES, left))
        if not piece:
            raise InvalidInput("the file has become shorter while it was sent; send it anew")
        yield piece
        left -= len(piece)
        on_progress(upload._replace(received=upload.received + part.size - left))


def _check_size(file: BinaryIO, upload: Upload) -> None:
    size = os.fstat(file.fileno()).st_size
    if size != upload.size:
        raise InvalidInput(f"the file has {size} bytes, and the upload was begun with {upload.size}; begin a new one")
