"""Logs of attempts: workers send pieces with byte offsets, stored as events of the job up to the first gap.

Pieces may arrive lost, repeated or out of order. The server ignores a piece beyond the stored end: the worker continues
from the offset in the answer. Two pieces written at the same moment overlap; the reader skips the repeated bytes.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from callsheet.http.problems import Problem
from callsheet.kernel import commands
from callsheet.kernel.job import RESERVED_PREFIX, NewEvent
from callsheet.kernel.settlement import Settlement
from callsheet.kernel.wire import encode

from .leases import Lease
from .models import Chunk, LogEnd

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.kernel.job import Event

PIECE = frozenset({"attempt", "offset", "text"})
LIMIT_BYTES = 1024 * 1024  # of one attempt
PAGE = 1_000


def _place(claim_version: int) -> str:
    return f"{RESERVED_PREFIX}log:{claim_version}"


async def stored_bytes(engine: Engine, job_id: str, claim_version: int) -> int:
    """Return how many bytes of an attempt's log are stored."""
    checkpoints = await engine.store.checkpoints(job_id)
    return int(checkpoints.get(_place(claim_version), "0"))  # a name that only this module writes


async def append(engine: Engine, lease: Lease, chunk: Chunk) -> tuple[Settlement | None, dict[str, Any]]:
    """Return the settlement that stores a log piece, None if nothing is new, and the answer with the next offset."""
    stored = await stored_bytes(engine, lease.job.job_id, lease.claim_version)
    data = chunk.text.encode("utf-8", "replace")
    end = stored + len(data)
    if chunk.offset != stored or not data or end > LIMIT_BYTES:
        return None, {"log_offset": stored, "log_full": chunk.offset == stored and end > LIMIT_BYTES}
    body = encode({"attempt": lease.claim_version, "offset": stored, "text": data.decode()})
    note = commands.note(lease.job, NewEvent("log", lease.job.stage, body))
    settlement = note._replace(checkpoint=(_place(lease.claim_version), str(end)))
    return settlement, {"log_offset": end, "log_full": False}


def is_line(data: Any) -> bool:
    """Return True if an event's data is a task's log line and not a piece of an attempt's log."""
    return isinstance(data, dict) and isinstance(data.get("message"), str) and not PIECE & data.keys()


async def read(engine: Engine, job_id: str, claim_version: int) -> bytes:
    """Return the stored log of an attempt."""
    text, after = bytearray(), 0
    while events := await engine.store.events({job_id: after}, PAGE):
        after = events[-1].seq
        for event in events:
            piece = _piece(event, claim_version) if event.type == "log" else None
            if piece is not None and 0 <= piece.offset <= len(text) < LIMIT_BYTES:
                text += piece.text.encode("utf-8", "replace")[len(text) - piece.offset :]
    return bytes(text)


def _piece(event: Event, claim_version: int) -> Chunk | None:
    """Return the event's piece of this attempt's log; None if the event is another attempt's or malformed."""
    try:
        body = json.loads(event.data)
        mine = isinstance(body, dict) and body.get("attempt") == claim_version
        return Chunk.model_validate({name: body.get(name) for name in ("offset", "text")}) if mine else None
    except (ValueError, RecursionError):  # an old version or another program wrote this event
        return None


async def whole(engine: Engine, lease: Lease, end: LogEnd) -> bool:
    """Return True if the stored log matches the sent log; raises Problem `log_incomplete` while a part is missing.

    A log over the size limit is never requested again.
    """
    if end.bytes > LIMIT_BYTES:
        return True
    log = await read(engine, lease.job.job_id, lease.claim_version)
    if len(log) < end.bytes:
        message = f"the log is kept up to {len(log)} of {end.bytes} bytes; send on from there, then complete"
        raise Problem("log_incomplete", message, ok=False, log_offset=len(log))
    return hashlib.sha256(log).hexdigest() == end.sha256
