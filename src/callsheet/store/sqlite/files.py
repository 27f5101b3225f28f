"""The files of a SQLite database are their owner's alone: they hold payloads, hashes of keys and secrets of the system.

The database file is never opened by hand here once it exists: closing it would drop SQLite's locks. It is made before
SQLite opens it, and its mode is changed by its path. SQLite gives the files beside it the mode of the database.
"""

from __future__ import annotations

import contextlib
import logging
import os

log = logging.getLogger("callsheet.sqlite")
SUFFIXES = ("", "-wal", "-shm", "-journal")
GROUPS = {"": 0o600, "read": 0o640, "write": 0o660}  # `?group=` of a URL, and the mode that it allows


def make_private(path: str, mode: int) -> None:
    """Make the file of a database with this mode, unless it is there; of a bad path SQLite tells."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        os.chmod(path, mode)  # noqa: PTH101 - a mask may have taken the group's rights


def keep_private(path: str, mode: int) -> None:
    """Take away what this mode does not allow, of the database and of the files beside it that are ours."""
    for file in _wide(path, mode):
        with contextlib.suppress(OSError):
            os.chmod(file, os.stat(file).st_mode & mode)  # noqa: PTH101, PTH116 - a path as SQLite takes it
            if file == path:
                advice = "its owner's alone now; add ?group=read or ?group=write to the URL to share it with its group"
                log.warning("others could read %s: it is %s", path, advice)


def open_to_others(path: str, mode: int) -> list[str]:
    """The files of a database that allow more than this mode; what is left of them belongs to somebody else."""
    return _wide(path, mode, ours=False)


def _wide(path: str, mode: int, *, ours: bool = True) -> list[str]:
    files = []
    for file in (path + suffix for suffix in SUFFIXES):
        with contextlib.suppress(OSError):
            facts = os.stat(file)  # noqa: PTH116
            if facts.st_mode & 0o777 & ~mode and (not ours or facts.st_uid == os.geteuid()):
                files.append(file)
    return files
