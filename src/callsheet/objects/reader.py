"""A seekable, blocking file over an object, for libraries that read files (PyAV)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined] # Python 3.12

    from obstore import ReadableFile


class _Raw(io.RawIOBase):
    """Adapts obstore's reader: returns Python bytes and raises ObjectsError."""

    def __init__(self, file: ReadableFile, known: Callable[[Exception], Exception]) -> None:
        super().__init__()
        self._file = file
        self._known = known

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        try:
            found = self._file.read(len(memoryview(buffer)))
        except Exception as error:  # noqa: BLE001 - the driver's errors end here
            raise self._known(error) from None
        memoryview(buffer)[: len(found)] = memoryview(found)
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def object_reader(file: ReadableFile, known: Callable[[Exception], Exception]) -> BinaryIO:
    """Wrap obstore's reader in a buffer of 256 KiB, so that small reads and short seeks send no request."""
    return cast("BinaryIO", io.BufferedReader(_Raw(file, known), 256 * 1024))
