"""Worker protocol versions: the server accepts the current version and the previous one. Nothing here performs I/O.

Version 1 is the bare contract; version 2 adds Callsheet's further fields. A worker that names no version speaks 1. A
claim with an unsupported version is refused with 426, but the worker may still end the jobs that it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.http.problems import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

CURRENT = 2
OLDEST = CURRENT - 1
HEADER = "callsheet-protocol"
BARE = 1
MOST_DIGITS = 6


def protocol_of(request: Request, field: int | None = None) -> int:
    """Return the worker's protocol: the body's `protocol`, else the header, else BARE. Raises Problem `bad_request`."""
    if field is not None:
        return field
    text = request.headers.get(HEADER, "").strip()
    if not text:
        return BARE
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise Problem("bad_request", f"the header {HEADER} is the number of a protocol, such as {CURRENT}")
    return int(text)


def check(protocol: int) -> int:
    """Return `protocol`; raises Problem `upgrade_required` unless this server supports that version."""
    if OLDEST <= protocol <= CURRENT:
        return protocol
    old = protocol < OLDEST
    advice = (
        "upgrade the worker; what it runs it may still end" if old else "this server is older: speak what it speaks"
    )
    raise Problem(
        "upgrade_required",
        f"protocol {protocol} is not served here, {OLDEST} to {CURRENT} are; {advice}",
        headers={"Upgrade": f"callsheet/{CURRENT}"},
        min_version=OLDEST,
        max_version=CURRENT,
    )


def lenient(protocol: int) -> int:
    """Return the nearest supported protocol. Heartbeats and ends of attempts are accepted with any protocol version."""
    return min(max(protocol, OLDEST), CURRENT)
