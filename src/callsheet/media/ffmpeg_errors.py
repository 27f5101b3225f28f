"""Translate ffmpeg's stderr into an error, with one line for people that shows no address, key or path."""

from __future__ import annotations

import re
import signal

from callsheet.sandbox.sandbox_launcher import EXIT_REFUSED

from .errors import (
    CorruptInput,
    DiskFull,
    FfmpegCrashed,
    FfmpegFailed,
    InputTooLarge,
    InvalidOutput,
    LimitReached,
    MediaError,
    NoSuchStream,
    OutputTooLarge,
    UnsupportedInput,
)

MESSAGE_CHARS = 300
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE)
_SECRET = re.compile(r"(?i)\b(x-amz-[a-z-]+|signature|token|key|secret|password|credential)(\s*[=:]\s*)[^\s&\"']+")
_PATH = re.compile(r"(?:file:)?/(?:[^\s/:'\"]+/)+")
_SPEAKER = re.compile(r"^(\[[^\]]*\] *)+")
# lines that merely repeat another line's error
_ECHO = re.compile(
    r"Conversion failed|Error opening (in|out)put|Error initializing|Task finished|Terminating thread"
    r"|Nothing was written|Error (sending|submitting|while|during|processing)|Exiting|Error closing"
    r"|Last message repeated|\s*$|Could not open encoder|Received signal|Error muxing"
)
_MEANINGS: tuple[tuple[str, type[MediaError]], ...] = (
    (r"No space left on device|Disk quota exceeded", DiskFull),
    (r"File too large", OutputTooLarge),
    (r"Picture size \S+ is invalid|exceeds max_pixels|Number of streams exceeds", InputTooLarge),
    (r"Cannot allocate memory|bad_alloc|Out of memory|malloc .*failed|pthread_create\(\) failed", LimitReached),
    (r"Resource temporarily unavailable|failed to map segment", LimitReached),  # no thread, or not even a library
    (r"matches no streams|does not contain any stream", NoSuchStream),
    (r"not on whitelist|not in whitelist|[Ff]ormat not on", UnsupportedInput),
    (r"Unknown encoder|Unrecognized option|Unable to parse|Invalid argument|Option not found", InvalidOutput),
    (r"Invalid data found|moov atom not found|corrupt|Error decoding|decode_slice|EBML|End of file", CorruptInput),
)
MEANINGS = tuple((re.compile(pattern), error) for pattern, error in _MEANINGS)


def error_of(code: int, stderr_tail: str) -> MediaError:
    """Return the error for a nonzero exit code and the tail of stderr."""
    if code < 0:
        return _of_signal(-code, stderr_tail)
    words = last_words(stderr_tail)
    if code == EXIT_REFUSED and stderr_tail.startswith("sandbox:"):
        return FfmpegFailed(f"the sandbox could not be built: {words}")
    for pattern, error in MEANINGS:
        if pattern.search(stderr_tail):
            return error(words)
    return FfmpegFailed(f"{words} (exit code {code})")


def death_of(code: int, work: str) -> MediaError | None:
    """Return the error for a decoding child of ours that a signal ended, None for an exit code. `work` names it."""
    if code in (-signal.SIGKILL, -signal.SIGXCPU):  # the kernel's kill, for CPU time or memory
        return LimitReached(f"{work} took more CPU time or memory than it may")
    return FfmpegCrashed(f"the decoder died of signal {-code} on this file") if code < 0 else None


def _of_signal(number: int, stderr_tail: str) -> MediaError:
    if number == signal.SIGXFSZ:
        return OutputTooLarge("the output is over the limit for one file")
    if number == signal.SIGABRT and "bad_alloc" in stderr_tail:
        return LimitReached("the work needs more memory than it may have")
    return FfmpegCrashed(f"ffmpeg died of signal {number} ({_name(number)})")


def last_words(stderr_tail: str) -> str:
    """Return the last meaningful line of stderr, safe to show and to store."""
    lines = [_SPEAKER.sub("", line).strip() for line in stderr_tail.splitlines()]
    meaningful_lines = [line for line in lines if line and not _ECHO.match(line)] or [line for line in lines if line]
    return without_secrets(meaningful_lines[-1])[:MESSAGE_CHARS] if meaningful_lines else "ffmpeg printed no error"


def without_secrets(text: str) -> str:
    """Remove addresses, values that look like keys, and folders from a text; file names stay."""
    text = _ADDRESS.sub("<address>", text)
    text = _SECRET.sub(r"\1\2<hidden>", text)
    return _PATH.sub("", text)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
