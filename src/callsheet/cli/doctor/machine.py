"""Checks of this machine: Python, ffmpeg, text recognition, and the keyring that decrypts stored secrets."""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from callsheet.app.rewrapping import keks_in_use
from callsheet.cli.open_store import missing_file
from callsheet.kernel.errors import CallsheetError
from callsheet.media import binaries
from callsheet.media.errors import FfmpegMissing, FfmpegUnfit
from callsheet.media.ocr import tessdata
from callsheet.sandbox import command
from callsheet.store import store_from_url
from callsheet.vault import Binding, Keyring, keyring_from
from callsheet.vault.errors import NoKeyring, VaultError
from callsheet.vault.keys import Keys, kek_name, read_file, read_keys

from .findings import Finding, bad, good, warning

OLDEST_PYTHON = (3, 11)
NAME = "keys"
LIMIT_S = 20.0
OTHERS = stat.S_IWGRP | stat.S_IWOTH
REWRAP = "callsheet vault rewrap"


def check_machine() -> list[Finding]:
    """Return the findings about this machine."""
    return [_python(), _uvloop(), *_ffmpeg(), _pyav(), _tesseract()]


def _python() -> Finding:
    text = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return good("Python", text)
    return bad("Python", text, "install 3.11 or newer")


def _uvloop() -> Finding:
    try:
        return good("uvloop", version("uvloop"))
    except PackageNotFoundError:
        return warning("uvloop", "not installed, so workers are slower", "pip install uvloop")


def _ffmpeg() -> list[Finding]:
    """Report which ffmpeg tasks would use and why, and its sandbox. Only media tasks need ffmpeg."""
    try:
        choice = binaries.choose()
    except FfmpegUnfit as error:
        return [bad("ffmpeg", *_halves(error)), _sandbox()]
    except FfmpegMissing as error:
        return [warning("ffmpeg", _halves(error)[0], f"{binaries.ADVICE}; only media tasks need it")]
    text = f"{choice.binary.version}, {choice.binary.path} ({choice.reason})"
    finding = warning("ffmpeg", text, f"{choice.danger}: {binaries.ADVICE}") if choice.danger else good("ffmpeg", text)
    return [finding, *map(_other_ffmpeg, choice.others), _sandbox()]


def _other_ffmpeg(other: tuple[binaries.Binary, str]) -> Finding:
    """Report an ffmpeg that is installed but not used: a warning only if it has known holes."""
    binary, why = other
    text = f"{binary.version}, {binary.path}: not used, {why}"
    if binary.is_safe:
        return good("other ffmpeg", text)
    return warning("other ffmpeg", text, "media tasks do not use it; keep it from strangers' files elsewhere, too")


def _pyav() -> Finding:
    """Report the ffmpeg libraries inside PyAV, which read files and decode frames."""
    try:
        ffmpeg = binaries.version_of_pyav()
    except ModuleNotFoundError:
        return warning("PyAV", "not installed", "pip install 'callsheet[media]'; only media tasks need it")
    text = f"{version('av')} with ffmpeg {ffmpeg or 'of an unknown version'}"
    if binaries.is_safe(binaries.numbers_of(ffmpeg)):
        return good("PyAV", text)
    advice = f"it may have known holes (CVE-2026-8461): pip install -U av, for {binaries.SAFE_VERSIONS} or newer"
    return warning("PyAV", text, advice)


def _halves(error: Exception) -> tuple[str, str]:
    """Split an error's message into the problem and the advice."""
    problem, _, advice = str(error).rpartition("; ")
    return problem, advice


def _sandbox() -> Finding:
    """Report what limits a decoder that a malicious file has taken over."""
    walls = command.walls()
    network = "no network" if walls.no_network else "network open"
    files = "sees its own files only" if walls.landlock else "sees all files of this user"
    how = ", ".join(name for name in ("namespace", "seccomp", "landlock") if getattr(walls, name))
    text = f"{network}, {files}" + (f" ({how})" if how else "")
    if not walls.no_network:
        advice = "allow unshare or seccomp in this container, or give the worker no way out of its network"
        return warning("ffmpeg sandbox", text, advice)
    if not walls.landlock:
        return warning("ffmpeg sandbox", text, "a kernel with Landlock (Linux 5.13) hides other files from it")
    return good("ffmpeg sandbox", text)


def _tesseract() -> Finding:
    """Report the library that reads text, and its trained data."""
    data = next(iter(tessdata.folders()), None)
    if data is None:
        advice = "pip install 'callsheet[media]', or apt install tesseract-ocr; only tasks that read text need it"
        return warning("tesseract", "no trained data found", advice)
    try:
        name = f"tesserocr {version('tesserocr')}"
    except PackageNotFoundError:
        advice = "pip install 'callsheet[media]'; only tasks that read text need it"
        return warning("tesseract", "tesserocr is not installed", advice)
    languages = sorted(path.stem for path in data.glob("*.traineddata") if path.stem != "osd")
    return good("tesseract", f"{name}, reads {', '.join(languages)}, {data}")


async def check_keys(database_url: str) -> list[Finding]:
    """Return the findings about the keyring; none without keys if nothing is encrypted."""
    uses = await _uses_of_keys(database_url)
    try:
        keyring = keyring_from(os.environ)
        async with asyncio.timeout(LIMIT_S):
            current = await _try_keyring(keyring)
    except NoKeyring as error:
        if not uses and not any(os.environ.get(f"CALLSHEET_{name}") for name in ("KEYS_FILE", "KEYS", "KMS")):
            return []
        return [bad(NAME, _unreadable(uses) or str(error), "set CALLSHEET_KEYS_FILE, CALLSHEET_KEYS or CALLSHEET_KMS")]
    except TimeoutError:
        return [bad(NAME, f"the key service has no answer within {LIMIT_S:g} s", "see CALLSHEET_KMS")]
    except VaultError as error:
        return [bad(NAME, str(error), "see `callsheet vault`")]
    return [good(NAME, f"{_source()}: {current} wraps and opens"), *_check_folder(), *_check_keks(uses, current)]


async def _try_keyring(keyring: Keyring) -> str:
    """Wrap and unwrap a new data key; return the id of the KEK that did it."""
    binding, dek = Binding("doctor", "doctor", 1), secrets.token_bytes(32)
    try:
        envelope = await keyring.wrap(dek, binding)
        if await keyring.unwrap(envelope.kek_id, envelope.wrapped, binding) != dek:
            raise VaultError("the keyring does not give back what it has wrapped")
        return envelope.kek_id
    finally:
        await keyring.close()


async def _uses_of_keys(database_url: str) -> dict[str, int]:
    """Return how many secrets in the store each KEK wraps; nothing if the store fails, which `check_store` reports."""
    try:
        store = store_from_url(database_url)
        if missing_file(store) is not None:
            return {}
        try:
            async with asyncio.timeout(LIMIT_S):
                await store.open()
                return await keks_in_use(store)
        finally:
            await store.close()
    except Exception:  # noqa: BLE001 - `check_store` reports it
        return {}


def _source() -> str:
    if service := os.environ.get("CALLSHEET_KMS", "").strip():
        return service
    return os.environ.get("CALLSHEET_KEYS_FILE", "").strip() or "CALLSHEET_KEYS"


def _local_keys() -> Keys | None:
    """Return the keys on this machine; None if they are in a key service."""
    if os.environ.get("CALLSHEET_KMS", "").strip():
        return None
    path = os.environ.get("CALLSHEET_KEYS_FILE", "").strip()
    try:
        return read_file(Path(path)) if path else read_keys(os.environ.get("CALLSHEET_KEYS", ""))
    except CallsheetError:
        return None


def _check_folder() -> list[Finding]:
    """Warn if others can write in the keyring's folder: they could replace the file."""
    path = os.environ.get("CALLSHEET_KEYS_FILE", "").strip()
    if not path or os.environ.get("CALLSHEET_KMS", "").strip():
        return []
    folder = Path(path).absolute().parent
    mode = folder.stat().st_mode
    if mode & OTHERS and not mode & stat.S_ISVTX:
        return [warning(NAME, f"others can write in {folder}, so they can replace the keyring", f"chmod go-w {folder}")]
    return []


def _check_keks(uses: dict[str, int], current: str) -> list[Finding]:
    keys = _local_keys()
    readable = {kek_name(number) for number in keys.keys if number >= keys.least} if keys is not None else set(uses)
    unreadable = {kek_id: n for kek_id, n in uses.items() if kek_id not in readable}
    old = sum(n for kek_id, n in uses.items() if kek_id in readable and kek_id != current)
    findings = [bad(NAME, _unreadable(unreadable), "give this process the keyring that has them")] if unreadable else []
    return [*findings, warning(NAME, f"{old} sealed under older keys", REWRAP)] if old else findings


def _unreadable(kek_counts: dict[str, int]) -> str:
    """Return a text about secrets that cannot be decrypted; '' if there are none."""
    names = ", ".join(sorted(kek_counts))
    return (
        f"{sum(kek_counts.values())} credentials and secrets are under {names}, which is not here" if kek_counts else ""
    )
