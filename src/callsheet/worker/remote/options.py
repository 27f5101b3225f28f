"""The options of a remote worker, in addition to those of every worker."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx2

from callsheet.kernel.durations import Duration, seconds
from callsheet.kernel.errors import InvalidInput

LABEL = re.compile(r"[A-Za-z0-9_.-]{1,50}").fullmatch
MAX_WAIT_S = 60.0
ENROLMENT = "cs_enroll_"
VERSION = "unknown"
with suppress(PackageNotFoundError):  # a program that runs from a folder is no package
    VERSION = version("callsheet")
EXAMPLE = "https://jobs.example.org"


@dataclass(frozen=True)
class RemoteOptions:
    """Checked options. `token` is a worker token, an enrolment token, or an API key with the scope `worker`.

    `token_file` holds the token instead; after enrolment or rotation the worker writes its new token to that file for
    the next start. An enrolment token in addition serves if the file is missing or its token is refused. `labels`: the
    worker's capabilities, such as gpu. `wait`: the longest wait of one claim request at the server.
    """

    url: str
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    labels: tuple[str, ...] = ()
    wait: Duration = 20.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _check(self.url))
        both = bool(self.token) and self.token_file is not None
        if (both and not self.token.startswith(ENROLMENT)) or not (self.token or self.token_file):
            raise InvalidInput(
                "a remote worker needs one token: in CALLSHEET_WORKER_TOKEN or in --token-file; beside a file only an "
                "enrolment token is given, for when that is lost"
            )
        if self.token and (not (self.token.isascii() and self.token.isprintable()) or " " in self.token):
            raise InvalidInput("the token has characters that no token has; was it pasted with a space or a line end?")
        if wrong := [label for label in self.labels if not LABEL(label)]:
            raise InvalidInput(f"{wrong[0]!r} is no label; use up to 50 letters, digits and . _ -")
        if not 0 < self.wait_s <= MAX_WAIT_S:
            raise InvalidInput(f"a request for jobs waits up to {MAX_WAIT_S:g} s, not {self.wait_s:g}")

    @property
    def wait_s(self) -> float:
        """`wait` in seconds."""
        return seconds(self.wait)


def _check(text: str) -> str:
    """Return the server's URL without a trailing slash; raises InvalidInput, whose text omits the URL."""
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise InvalidInput(f"the server's URL cannot be read; write {EXAMPLE}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidInput(f"the server's URL begins with http:// or https://; write {EXAMPLE}")
    if url.userinfo or url.query or url.fragment:
        raise InvalidInput("the server's URL holds more than scheme, host and path; the token is given apart")
    return str(url).rstrip("/")
