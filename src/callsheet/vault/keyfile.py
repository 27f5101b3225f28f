"""The keyring file: read and replaced as a whole, changed under a lock, and accessible to its owner only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from .errors import InvalidKeyring, NoKeyring
from .keys import Keys, read_keys


@contextlib.contextmanager
def changing(path: Path) -> Iterator[Keys | None]:
    """Lock the file and yield its keys, or None without a file; so two concurrent rotations lose no key."""
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield read_file(path) if path.exists() else None
    finally:
        os.close(lock)


def read_file(path: Path) -> Keys:
    """Read the keys in a file; raises NoKeyring, or InvalidKeyring if the text is invalid or others may read it."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read()
    except FileNotFoundError:
        raise NoKeyring(f"there is no keyring {path}; `callsheet vault rotate` makes it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise NoKeyring(f"the keyring {path} cannot be read: {type(error).__name__}") from None
    if mode & 0o077:
        raise InvalidKeyring(f"others can read the keyring {path}; `chmod 600` it, and rotate if they may have")
    return read_keys(text)


def write_file(path: Path, keys: Keys) -> None:
    """Replace the file atomically, readable by its owner only."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(keys.text())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
