"""Counts of jobs for statistics, chunk by chunk, so that no script blocks the server for long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.job import Status
from callsheet.store.protocol import EndedCount, WorkerLoad

if TYPE_CHECKING:
    from .client import Client

CHUNK = 1_000  # rows that one script scans: some 3 ms


async def ended_counts(client: Client, since: int, span_ms: int, requester_id: str | None) -> list[EndedCount]:
    """Return counts of jobs ended since a moment; jobs pruned meanwhile ended before that moment."""
    found = []
    for key, (count, _) in (await _tally(client, "ended_counts", requester_id, since, span_ms)).items():
        at, kind, status = key.split("\x1f")
        found.append(EndedCount(int(at), kind, Status(status), count))
    return found


async def dead_letters(client: Client, requester_id: str | None) -> dict[str, int]:
    """Return the number of dead letters by kind."""
    found = await _tally(client, "dead_letters", requester_id, 0, 1)
    return {kind: count for kind, (count, _) in found.items()}


async def worker_loads(client: Client, requester_id: str | None) -> list[WorkerLoad]:
    """Return running jobs by worker."""
    found = await _tally(client, "worker_loads", requester_id, 0, 1)
    return [WorkerLoad(worker, count, beat) for worker, (count, beat) in sorted(found.items())]


async def _tally(
    client: Client, what: str, requester_id: str | None, since: int, span_ms: int
) -> dict[str, tuple[int, int | None]]:
    requester = "" if requester_id is None else f"={requester_id}"
    found: dict[str, tuple[int, int | None]] = {}
    skip, looked = 0, CHUNK
    while looked == CHUNK:
        looked, *rest = await client.run("tally", None, what, requester, since, span_ms, skip, CHUNK)
        skip += looked
        for key, count, latest in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            before, beat = found.get(key, (0, None))
            beats = [ms for ms in (beat, int(latest) if latest else None) if ms is not None]
            found[key] = (before + int(count), max(beats, default=None))
    return found
