"""A keyring's text: numbered keys of 32 bytes, which of them wraps, and which are retired.

The text has a line for each key, and two optional lines; in an environment variable `,` separates lines:

    current k3          the wrapping key; by default the key with the highest number
    min k2              keys with lower numbers are retired: data keys under them are no longer unwrapped
    k2 3q2+7wAA…        32 bytes as base64
    k3 mB0cEAAA…
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import InvalidKeyring, NoKeyring
from .keyring import ADVICE

KEY_BYTES = 32
IS_ID = re.compile(r"k([1-9][0-9]{0,8})").fullmatch
DIRECTIVES = ("current", "min")
NOTE = "# Keys of the vault. Who has them and the database has the secrets; without them the secrets are lost.\n"


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """The keys of a keyring by number, the current key's number, and the minimum."""

    keys: Mapping[int, bytes]
    current: int
    least: int = 1

    def __repr__(self) -> str:
        return f"Keys({', '.join(map(kek_name, sorted(self.keys)))}; current {kek_name(self.current)})"

    @property
    def prepared(self) -> int | None:
        """The number of a key that is newer than the current key, and so not yet in use; else None."""
        newest = max(self.keys)
        return newest if newest > self.current else None

    def with_new_key(self, *, in_use: bool) -> Keys:
        """Return a copy with a new random key, made current if `in_use`."""
        number = max(self.keys) + 1
        keys = {**self.keys, number: secrets.token_bytes(KEY_BYTES)}
        return replace(self, keys=keys, current=number if in_use else self.current)

    def without_below(self, least: int) -> Keys:
        """Return a copy without the keys below a number, which retires those keys."""
        return Keys({n: key for n, key in self.keys.items() if n >= least}, self.current, least)

    def text(self) -> str:
        """Return the text for a keyring file."""
        lines = [f"current {kek_name(self.current)}", f"min {kek_name(self.least)}"]
        lines += [f"{kek_name(n)} {base64.b64encode(key).decode()}" for n, key in sorted(self.keys.items())]
        return NOTE + "".join(f"{line}\n" for line in lines)


def kek_name(number: int) -> str:
    """Return the KEK id of a key number."""
    return f"k{number}"


def kek_number(kek_id: str) -> int | None:
    """Return the key number of a KEK id; None for an id of another kind of keyring."""
    match = IS_ID(kek_id)
    return int(match[1]) if match else None


def first_keys() -> Keys:
    """Make a keyring with one random key."""
    return Keys({1: secrets.token_bytes(KEY_BYTES)}, 1)


def read_keys(text: str) -> Keys:
    """Parse a keyring's text; raises InvalidKeyring, whose message gives the line number but no content."""
    keys: dict[int, bytes] = {}
    directives: dict[str, int] = {}
    for place, line in enumerate(text.splitlines(), 1):
        for item in line.partition("#")[0].split(","):
            name, _, value = item.strip().partition(" ")
            if not name:
                continue
            number = kek_number(value.strip() if name in DIRECTIVES else name)
            if number is None or name in directives or (name not in DIRECTIVES and number in keys):
                raise InvalidKeyring(f"line {place} of the keyring is none of `kN BASE64`, `current kN`, `min kN`")
            if name in DIRECTIVES:
                directives[name] = number
            else:
                keys[number] = _key(value.strip(), place)
    return _keys_of(keys, directives)


def _key(text: str, place: int) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidKeyring(f"line {place} of the keyring is not {KEY_BYTES} bytes as base64")
    return key


def _keys_of(keys: dict[int, bytes], directives: Mapping[str, int]) -> Keys:
    if not keys:
        raise InvalidKeyring(f"the keyring has no key; {ADVICE}")
    result = Keys(keys, directives.get("current", max(keys)), directives.get("min", 1))
    if result.current not in keys or result.current < result.least:
        raise InvalidKeyring("the keyring's current key is missing, or below its minimum")
    return result


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
