"""Claims for some tenants: page by page along the streams, remembering how far only other tenants' jobs stand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from callsheet.kernel.errors import StoreError
from callsheet.kernel.job import Job

from .records import as_map, claimed_job_of

if TYPE_CHECKING:
    from callsheet.store.protocol import ClaimRequest

    from .client import Client

PAGE = 1_000  # messages that one call of the script scans: some two milliseconds of the server
KEPT_S = 10.0  # then a walk starts over, in case the stream was created again with lower ids
MOST = 1_000
Line = tuple[str, frozenset[str]]
Places = dict[str, str]


class Walks:
    """The progress of each walk, by queue and tenants: priority to the last message that was scanned."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._positions: dict[Line, tuple[float, Places]] = {}

    async def claim(self, request: ClaimRequest, now: int | None) -> list[Job]:
        """Take the jobs of the request's tenants, queue by queue, past any number of other tenants' jobs."""
        jobs: list[Job] = []
        try:
            for queue in dict.fromkeys(request.queues):
                line = (queue, request.tenants or frozenset())
                begun_at, places = self._begin(line)
                is_at_end = False
                while not is_at_end and len(jobs) < request.limit:
                    rest = request._replace(limit=request.limit - len(jobs))
                    more, places, is_at_end = await self._page(rest, line, places, now)
                    self._positions[line] = (begun_at, places)
                    jobs += more
        except StoreError:
            if not jobs:
                raise  # else return the claimed jobs to the worker
        return jobs

    async def _page(
        self, request: ClaimRequest, line: Line, places: Places, now: int | None
    ) -> tuple[list[Job], Places, bool]:
        """Claim from one page of a line; return jobs, the walk's new position, and whether the line ended."""
        queue, tenants = line
        head = (request.worker_id, request.limit, request.lease_ms, "1" if request.start else "", queue, PAGE)
        pairs = (part for pair in places.items() for part in pair)
        at, progress, *rows = await self._client.run(
            "claim_of_tenants", now, *head, len(tenants), *sorted(tenants), *pairs
        )
        is_at_end, *now_at = progress
        return [claimed_job_of(as_map(flat), request, int(at)) for flat in rows], as_map(now_at), bool(is_at_end)

    def _begin(self, line: Line) -> tuple[float, Places]:
        """Return start time and position of the recent walk along this line, or of a new walk."""
        begun_at, places = self._positions.get(line, (float("-inf"), {}))
        if self._clock() - begun_at < KEPT_S:
            return begun_at, places
        if len(self._positions) >= MOST:
            self._positions.clear()
        return self._clock(), {}
