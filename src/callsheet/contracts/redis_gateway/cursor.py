"""Resolves event ids that clients resume from: Callsheet's own ids, and raw Redis ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.contracts import REDIS_GATEWAY
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.wire import parse_event_id

if TYPE_CHECKING:
    from callsheet.http.state import ServerState
    from callsheet.kernel.job import Job

PAGE = 500


async def known_seq(state: ServerState, job: Job, text: str) -> int | None:
    """Return the `seq` of an event id of this job, 0 for the stream's start, None for an unknown id.

    As in `XREAD`, `$` means the newest event. Raw ids of entries that foreign workers wrote are known, too. An id that
    could be both ours and raw counts as ours: our event is never the later one, so no event is skipped.
    """
    if text in ("0", "$"):
        return 0 if text == "0" else job.event_seq
    try:
        ms, seq = parse_event_id(text)
    except InvalidInput:
        return None
    if seq == 0 and ms == 0:
        return 0
    events = await state.engine.store.events({job.job_id: seq - 1}, 1) if 0 < seq <= job.event_seq else []
    if events and events[0].seq == seq and events[0].ms == ms:
        return seq
    return await _raw_seq(state, job, f"{ms}-{seq}") if job.contract == REDIS_GATEWAY.name else None


async def _raw_seq(state: ServerState, job: Job, raw_id: str) -> int | None:
    """Return the `seq` of an entry that another program wrote into the job's stream, by the entry's raw id.

    Event times of a job never decrease: a binary search finds the first event of this time, then events are scanned.
    """
    ms, low, high = parse_event_id(raw_id)[0], 0, job.event_seq
    while low < high:
        middle = (low + high) // 2
        events = await state.engine.store.events({job.job_id: middle}, 1)
        if events and events[0].ms < ms:
            low = middle + 1
        else:
            high = middle
    while events := await state.engine.store.events({job.job_id: low}, PAGE):
        if (seq := next((event.seq for event in events if event.raw_id == raw_id), None)) is not None:
            return seq
        if events[-1].ms > ms:
            break
        low = events[-1].seq
    return None
