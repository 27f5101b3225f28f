"""Multipart uploads into a folder: each part is written at its offset in one file, which becomes the object.

A part's JSON note is written after the part's bytes are synced to disk. Part writers hold a shared file lock and
completion an exclusive lock, so no part is written into a completed object.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from .errors import ObjectTooLarge, UploadBusy, UploadNotFound
from .face import Data
from .keys import OWN
from .records import Part, Upload
from .signing import checked_number, chosen_parts
from .threads import in_thread, pieces
from .tree import NEW, READ, Tree, known_errors, names_in

UPLOADS = "uploads"
_ID = re.compile(r"[0-9a-f]{32}").fullmatch
WRITE = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderUploads:
    """The multipart uploads below a root folder."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def begin(self, key: str, part_bytes: int, content_type: str) -> Upload:
        """Create an upload's folder, note and data file; returns the upload."""
        upload = Upload(key, secrets.token_hex(16), part_bytes, content_type)
        with known_errors(f"begin an upload of {key}"), self._tree.folder(_names(upload), make=True) as folder:
            _write_note(folder, "meta.json", upload._asdict())
            os.close(os.open("data", NEW, 0o666, dir_fd=folder))
        return upload

    def find(self, key: str, upload_id: str) -> Upload:
        """Return an open upload by id; raises UploadNotFound, also for another key."""
        with self._open(Upload(key, upload_id, 0, "")) as folder:
            own_upload = Upload(**_read_note(folder, "meta.json"))
        if own_upload.key != key:
            raise UploadNotFound(f"no upload of {key}, or not any more")
        return own_upload

    async def put_part(self, upload: Upload, number: int, data: Data) -> Part:
        """Write one part, which is listed after its bytes are synced to disk. Raises ObjectTooLarge, UploadBusy."""
        doing = f"put part {checked_number(number)} of {upload.key}"
        own_upload = await in_thread(self.find, upload.key, upload.upload_id)
        file = await in_thread(self._begin_part, own_upload, number)
        digest, size = hashlib.sha256(), 0
        start = (number - 1) * own_upload.part_bytes
        try:
            async for piece in pieces(data):
                if size + len(piece) > own_upload.part_bytes:
                    raise ObjectTooLarge(f"{doing}: it has more than {own_upload.part_bytes} bytes")
                await in_thread(_write_at, file, piece, start + size)
                digest.update(piece)
                size += len(piece)
            part = Part(number, digest.hexdigest(), size)
            await in_thread(self._note_part, own_upload, part, file)
        finally:
            os.close(file)
        return part

    def _begin_part(self, upload: Upload, number: int) -> int:
        """Open the data file with a shared lock, and delete the note of an earlier part with the same number."""
        with self._open(upload) as folder:
            file = os.open("data", WRITE, dir_fd=folder)
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os.stat("data", dir_fd=folder)  # not completed in between
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(_part_name(number), dir_fd=folder)
            except BlockingIOError:
                os.close(file)
                raise UploadBusy(f"the upload of {upload.key} is being completed") from None
            except BaseException:
                os.close(file)
                raise
        return file

    def _note_part(self, upload: Upload, part: Part, file: int) -> None:
        with self._open(upload) as folder:
            os.fdatasync(file)
            _write_note(folder, _part_name(part.number), part._asdict())

    def parts(self, upload: Upload) -> list[Part]:
        """Return the completely written parts in order of number; raises UploadNotFound."""
        self.find(upload.key, upload.upload_id)
        with self._open(upload) as folder:
            names = sorted(name for name in names_in(folder) if name.startswith("part-"))
            return [Part(**_read_note(folder, name)) for name in names]

    @contextlib.contextmanager
    def whole(self, upload: Upload, requested: Sequence[Part] | None) -> Iterator[tuple[Upload, tuple[str, ...]]]:
        """Lock the upload against part writers and yield the upload with the folders of its data file.

        The block renames the data file; afterwards the upload's folder is deleted. Raises UploadBusy, UploadIncomplete.
        """
        own_upload = self.find(upload.key, upload.upload_id)
        with self._open(upload) as folder:
            file = os.open("data", WRITE, dir_fd=folder)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UploadBusy(f"a part of {upload.key} is still being written") from None
            here = self.parts(upload)
            selection = chosen_parts(
                own_upload, {part.number: part for part in here}, list(here if requested is None else requested)
            )
            with known_errors(f"complete {upload.key}"):
                os.ftruncate(file, sum(part.size_bytes for part in selection))
                os.fsync(file)
            yield own_upload, tuple(_names(upload)[1:])
        finally:
            os.close(file)
        self.drop(upload)

    def drop(self, upload: Upload) -> None:
        """Delete an upload's files and folder; an unknown upload is ignored."""
        with contextlib.suppress(UploadNotFound), self._open(upload) as folder:
            with contextlib.suppress(FileNotFoundError):
                if _read_note(folder, "meta.json")["key"] != upload.key:
                    return  # the upload of another key
            for name in names_in(folder):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
            with self._tree.folder(_names(upload)[:-1]) as above, contextlib.suppress(OSError):
                os.rmdir(upload.upload_id, dir_fd=above)

    @contextlib.contextmanager
    def _open(self, upload: Upload) -> Iterator[int]:
        if not _ID(upload.upload_id):
            raise UploadNotFound(f"no upload of {upload.key}, or not any more")
        try:
            with known_errors(f"upload {upload.key}", missing=True), self._tree.folder(_names(upload)) as folder:
                yield folder
        except (FileNotFoundError, NotADirectoryError):
            raise UploadNotFound(f"no upload of {upload.key}, or not any more") from None


def _names(upload: Upload) -> list[str]:
    return [OWN, UPLOADS, upload.upload_id]


def _part_name(number: int) -> str:
    return f"part-{number:05}"


def _write_at(file: int, piece: bytes, at: int) -> None:
    rest = memoryview(piece)
    with known_errors("write"):
        while rest:
            written_bytes = os.pwrite(file, rest, at)
            rest, at = rest[written_bytes:], at + written_bytes


def _write_note(folder: int, name: str, note: dict[str, Any]) -> None:
    temporary = f"new-{secrets.token_hex(8)}"
    with os.fdopen(os.open(temporary, NEW, 0o666, dir_fd=folder), "wb") as file:
        file.write(json.dumps(note).encode())
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _read_note(folder: int, name: str) -> dict[str, Any]:
    with os.fdopen(os.open(name, READ, dir_fd=folder), "rb") as file:
        note: dict[str, Any] = json.loads(file.read(65_536))
        return note
