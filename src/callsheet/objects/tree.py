"""File access confined to one root folder: each path segment is opened relative to its parent, without links.

Somebody could replace a checked path by a symbolic link before use; an open folder descriptor cannot be replaced.
Links, pipes and devices are no objects: reads and lists skip them, writes replace them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .errors import InvalidKey, KeyConflict, ObjectNotFound, ObjectsError, ObjectsForbidden, ObjectsUnavailable
from .keys import OWN, checked

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would wait for its other end
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LOCKS = 64
TRIES = 50
IN_THE_WAY = (errno.ENOTDIR, errno.ELOOP)
TEMPORARY = "tmp"
STALE_S = 24 * 3600.0


class Entry(NamedTuple):
    """A file's key and file status."""

    key: str
    stat: os.stat_result


class Tree:
    """A root folder held open by descriptor, and the files below the root, by key."""

    def __init__(self, root: Path) -> None:
        self.path = root
        self._root: int | None = None

    def root(self) -> int:
        """Return the root's descriptor; the first call creates and opens the folder."""
        if self._root is None:
            with known_errors("open the folder of the objects"):
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._sweep()
        return self._root

    def _sweep(self) -> None:
        """Delete temporary files older than a day: dead processes left them."""
        with contextlib.suppress(OSError), self.folder([OWN, TEMPORARY]) as folder:
            for name in names_in(folder):
                if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < time.time() - STALE_S:
                    os.unlink(name, dir_fd=folder)

    def close(self) -> None:
        """Close the root's descriptor."""
        root, self._root = self._root, None
        if root is not None:
            os.close(root)

    @contextlib.contextmanager
    def folder(self, names: list[str], *, make: bool = False) -> Iterator[int]:
        """Open a folder below the root for the block; raises FileNotFoundError, or OSError if a file blocks it."""
        held = os.dup(self.root())
        try:
            for name in names:
                below = _enter(held, name, make=make)
                os.close(held)
                held = below
            yield held
        finally:
            os.close(held)

    @contextlib.contextmanager
    def above(self, key: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the parent folder of a key's file for the block; yields the descriptor and the file name."""
        *folders, name = key.split("/")
        with self.folder(folders, make=make) as held:
            yield held, name

    def open(self, key: str) -> int:
        """Open a file for reading; raises ObjectNotFound unless the key is a regular file."""
        try:
            with self.above(key) as (folder, name):
                file = os.open(name, READ, dir_fd=folder)
        except OSError as error:
            raise _unreadable(error, key) from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise ObjectNotFound(f"get {key}: there is none")
        return file

    def stat(self, key: str) -> os.stat_result:
        """Return the file status of a key; raises ObjectNotFound."""
        try:
            with self.above(key) as (folder, name):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            raise _unreadable(error, key) from None
        if not stat.S_ISREG(status.st_mode):
            raise ObjectNotFound(f"head {key}: there is none")
        return status

    def create(self, *folders: str) -> tuple[int, str]:
        """Create a file with a random name below `.callsheet/`; returns the open descriptor and the name."""
        name = secrets.token_hex(16)
        with known_errors("write"), self.folder([OWN, *folders], make=True) as folder:
            return os.open(name, NEW, 0o666, dir_fd=folder), name

    def move(self, folders: tuple[str, ...], name: str, key: str) -> None:
        """Rename a file below `.callsheet/` to a key, atomically; an existing object is replaced."""
        for _ in range(TRIES):
            with known_errors(f"put {key}"), self.folder([OWN, *folders]) as source:
                try:
                    with self.above(key, make=True) as (folder, last):
                        os.rename(name, last, src_dir_fd=source, dst_dir_fd=folder)
                        os.fsync(folder)
                        return
                except FileNotFoundError:
                    continue  # a concurrent delete of the folder's last file removed the empty folder
        raise ObjectsUnavailable(f"put {key}: its folder vanishes again and again")

    def remove(self, key: str) -> None:
        """Delete a key's file and the folders left empty. A missing file and a folder of that name are ignored."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), known_errors(f"delete {key}", missing=True):
            with self.above(key) as (folder, name):
                if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    return
                os.unlink(name, dir_fd=folder)
            self._prune(key.split("/")[:-1])

    def _prune(self, names: list[str]) -> None:
        with contextlib.suppress(OSError):
            while names:
                with self.folder(names[:-1]) as folder:
                    os.rmdir(names.pop(), dir_fd=folder)  # fails where something is left

    def walk(self, names: list[str], after: str = "") -> Iterator[Entry]:
        """Yield the files below a folder in byte order of their keys, beginning behind the key `after`."""
        try:
            with self.folder(names) as folder:
                children = sorted(_children(folder, names))
        except OSError as error:
            if error.errno in (errno.ENOENT, *IN_THE_WAY):
                return
            raise
        for name, status in children:
            key = "/".join([*names, name.removesuffix("/")])
            if name.endswith("/"):
                if f"{key}/\U0010ffff" > after:  # something below may come after it
                    yield from self.walk([*names, name[:-1]], after)
            elif status is not None and key > after:
                yield Entry(key, status)

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold a lock on the key across all processes. Writers hold it only to rename, not to copy bytes."""
        number = sum(key.encode()) % LOCKS
        with known_errors(f"lock {key}"), self.folder([OWN, "locks"], make=True) as folder:
            file = os.open(f"{number:02}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
            finally:
                os.close(file)


def names_in(folder: int) -> list[str]:
    """Return the names in an open folder."""
    with _to_list(folder) as own:
        return os.listdir(own)  # noqa: PTH208 - a path could lead elsewhere by now


@contextlib.contextmanager
def _to_list(folder: int) -> Iterator[int]:
    """Reopen a folder for listing: listings on a shared descriptor share one position and skip each other's names."""
    own = os.open(".", FOLDER, dir_fd=folder)
    try:
        yield own
    finally:
        os.close(own)


def _enter(folder: int, name: str, *, make: bool) -> int:
    for _ in range(TRIES):
        try:
            return os.open(name, FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    raise FileNotFoundError(errno.ENOENT, "a folder vanishes again and again")


def _children(folder: int, names: list[str]) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield files with status, and folders with a slash so that names sort like keys. Skips names invalid as keys."""
    with _to_list(folder) as own, os.scandir(own) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError, InvalidKey):
                checked("/".join([*names, entry.name]))
                if entry.is_dir(follow_symlinks=False):
                    yield f"{entry.name}/", None
                elif entry.is_file(follow_symlinks=False):
                    yield entry.name, entry.stat(follow_symlinks=False)


def _unreadable(error: OSError, key: str) -> ObjectsError:
    if error.errno in (errno.ENOENT, *IN_THE_WAY, errno.ENXIO):
        return ObjectNotFound(f"get {key}: there is none")
    return _error_of(error, f"get {key}")


def _error_of(error: OSError, doing: str) -> ObjectsError:
    if error.errno in (*IN_THE_WAY, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST):
        return KeyConflict(f"{doing}: a folder or a file of that name is in the way")
    if error.errno in (errno.EACCES, errno.EPERM):
        return ObjectsForbidden(f"{doing}: this account may not", provider_code=errno.errorcode[error.errno])
    word = errno.errorcode.get(error.errno or 0, "?")
    return ObjectsUnavailable(f"{doing}: {os.strerror(error.errno or 0)}", provider_code=word)


@contextlib.contextmanager
def known_errors(doing: str, *, missing: bool = False) -> Iterator[None]:
    """Translate OSErrors to ObjectsErrors; with `missing`, FileNotFoundError and NotADirectoryError pass."""
    try:
        yield
    except OSError as error:
        if missing and isinstance(error, FileNotFoundError | NotADirectoryError):
            raise
        raise _error_of(error, doing) from None
