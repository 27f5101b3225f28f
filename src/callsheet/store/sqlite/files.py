"""File modes of a SQLite database: private to the owner, since it holds payloads, key hashes and system secrets.

This module never opens an existing database file: closing it would drop SQLite's locks. The file is created before
SQLite opens it, and its mode is changed by path. SQLite gives the files beside it the mode of the database.
"""

from __future__ import annotations

import contextlib
import logging
import os

log = logging.getLogger("callsheet.sqlite")
SUFFIXES = ("", "-wal", "-shm", "-journal")
GROUPS = {"": 0o600, "read": 0o640, "write": 0o660}  # `?group=` of a URL, and the mode that it allows


def make_private(path: str, mode: int) -> None:
    """Create the database file with this mode unless it exists; SQLite itself reports a bad path."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        os.chmod(path, mode)  # noqa: PTH101 - a mask may have taken the group's rights


def keep_private(path: str, mode: int) -> None:
    """Remove rights beyond this mode from the database and from our files beside it."""
    for file in _wide(path, mode):
        with contextlib.suppress(OSError):
            os.chmod(file, os.stat(file).st_mode & mode)  # noqa: PTH101, PTH116 - a path as SQLite takes it
            if file == path:
                advice = "its owner's alone now; add ?group=read or ?group=write to the URL to share it with its group"
                log.warning("others could read %s: it is %s", path, advice)


def open_to_others(path: str, mode: int) -> list[str]:
    """Return database files whose mode allows more than `mode`; after `keep_private`, only other users' files."""
    return _wide(path, mode, ours=False)


def _wide(path: str, mode: int, *, ours: bool = True) -> list[str]:
    files = []
    for file in (path + suffix for suffix in SUFFIXES):
        with contextlib.suppress(OSError):
            facts = os.stat(file)  # noqa: PTH116
            if facts.st_mode & 0o777 & ~mode and (not ours or facts.st_uid == os.geteuid()):
                files.append(file)
    return files
