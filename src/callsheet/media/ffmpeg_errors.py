"""What ffmpeg's last words mean: which error it is, and one line for people without addresses, keys or paths."""

from __future__ import annotations

import re
import signal

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
from .sandbox_launcher import REFUSED

MESSAGE_CHARS = 300
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE)
_SECRET = re.compile(r"(?i)\b(x-amz-[a-z-]+|signature|token|key|secret|password|credential)(\s*[=:]\s*)[^\s&\"']+")
_PATH = re.compile(r"(?:file:)?/(?:[^\s/:'\"]+/)+")
_SPEAKER = re.compile(r"^(\[[^\]]*\] *)+")
# lines that only say that some other line said it
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


def error_of(code: int, said: str) -> MediaError:
    """The error behind an exit code that is not zero."""
    if code < 0:
        return _of_signal(-code, said)
    words = last_words(said)
    if code == REFUSED and said.startswith("sandbox:"):
        return FfmpegFailed(f"the box could not be built: {words}")
    for pattern, error in MEANINGS:
        if pattern.search(said):
            return error(words)
    return FfmpegFailed(f"{words} (exit code {code})")


def _of_signal(number: int, said: str) -> MediaError:
    if number == signal.SIGXFSZ:
        return OutputTooLarge("the output is over the limit for one file")
    if number == signal.SIGABRT and "bad_alloc" in said:
        return LimitReached("the work needs more memory than it may have")
    return FfmpegCrashed(f"ffmpeg died of signal {number} ({_name(number)})")


def last_words(said: str) -> str:
    """The last line that tells something, made safe to show and to keep."""
    lines = [_SPEAKER.sub("", line).strip() for line in said.splitlines()]
    telling = [line for line in lines if line and not _ECHO.match(line)] or [line for line in lines if line]
    return without_secrets(telling[-1])[:MESSAGE_CHARS] if telling else "ffmpeg said nothing"


def without_secrets(text: str) -> str:
    """Addresses, values that look like keys, and folders are left out; the name of a file stays."""
    text = _ADDRESS.sub("<address>", text)
    text = _SECRET.sub(r"\1\2<hidden>", text)
    return _PATH.sub("", text)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
