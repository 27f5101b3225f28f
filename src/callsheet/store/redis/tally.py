"""Counts of jobs for statistics, chunk by chunk, so that no script blocks the server for long."""

from __future__ import annotations

from callsheet.kernel.job import Status
from callsheet.store.protocol import EndedCount, WorkerLoad

from .client import Client

CHUNK = 1_000  # rows that one script scans: some 3 ms


class Tallies:
    """The counting verbs of the Redis store."""

    _client: Client

    async def ended_counts(self, *, since: int, span_ms: int, requester_id: str | None = None) -> list[EndedCount]:
        """See the protocol; jobs pruned meanwhile ended before `since`."""
        tally = await self._tally("ended_counts", requester_id, since, span_ms)
        counts = []
        for key, (count, _) in tally.items():
            at, kind, status = key.split("\x1f")
            counts.append(EndedCount(int(at), kind, Status(status), count))
        return counts

    async def dead_letters(self, requester_id: str | None = None) -> dict[str, int]:
        tally = await self._tally("dead_letters", requester_id, 0, 1)
        return {kind: count for kind, (count, _) in tally.items()}

    async def worker_loads(self, requester_id: str | None = None) -> list[WorkerLoad]:
        tally = await self._tally("worker_loads", requester_id, 0, 1)
        return [WorkerLoad(worker, count, beat) for worker, (count, beat) in sorted(tally.items())]

    async def _tally(
        self, what: str, requester_id: str | None, since: int, span_ms: int
    ) -> dict[str, tuple[int, int | None]]:
        requester = "" if requester_id is None else f"={requester_id}"
        tally: dict[str, tuple[int, int | None]] = {}
        skip, scan_count = 0, CHUNK
        while scan_count == CHUNK:
            scan_count, *rest = await self._client.run("tally", None, what, requester, since, span_ms, skip, CHUNK)
            skip += scan_count
            for key, count, latest in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
                before, beat = tally.get(key, (0, None))
                beats = [ms for ms in (beat, int(latest) if latest else None) if ms is not None]
                tally[key] = (before + int(count), max(beats, default=None))
        return tally
