"""Which protocols workers may speak: the present one and the one before. Nothing here reads or writes anything.

1 is the bare contract; 2 has our further fields. A worker that says nothing speaks 1. One that speaks another is told
so (426) when it asks for work, but may always bring to an end what it has.
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


def claimed(request: Request, field: int | None = None) -> int:
    """What a worker says that it speaks: in the body's `protocol`, else in the header; BARE when it says nothing."""
    if field is not None:
        return field
    text = request.headers.get(HEADER, "").strip()
    if not text:
        return BARE
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise Problem("bad_request", f"the header {HEADER} is the number of a protocol, such as {CURRENT}")
    return int(text)


def check(protocol: int) -> int:
    """The same number; raises Problem `upgrade_required` unless this server speaks it."""
    if OLDEST <= protocol <= CURRENT:
        return protocol
    old = protocol < OLDEST
    told = "upgrade the worker; what it runs it may still end" if old else "this server is older: speak what it speaks"
    raise Problem(
        "upgrade_required",
        f"protocol {protocol} is not served here, {OLDEST} to {CURRENT} are; {told}",
        headers={"Upgrade": f"callsheet/{CURRENT}"},
        min_version=OLDEST,
        max_version=CURRENT,
    )


def lenient(protocol: int) -> int:
    """The nearest protocol that is served: for heartbeats and ends of attempts, which are taken from everybody."""
    return min(max(protocol, OLDEST), CURRENT)
