"""`/v1/overview`: what is queued, running and ending, for people who watch. Jobs that ended long ago are not read."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request

from callsheet.http import problems
from callsheet.http.buckets import RecentCache
from callsheet.http.json_bodies import JsonAnswer
from callsheet.http.parameters import ALWAYS, Moment, Reader
from callsheet.http.state import PerServer, ServerState, state_of
from callsheet.kernel.job import HoldReason, Job, Status
from callsheet.kernel.workers import name_of
from callsheet.store.protocol import Backlog, JobQuery, WorkerLoad

if TYPE_CHECKING:
    from callsheet.store.protocol import Store


if TYPE_CHECKING:
    from callsheet.http.worker_registry import Worker

OPEN = (Status.QUEUED, Status.RUNNING)
ENDS = (Status.SUCCEEDED, Status.FAILED, Status.DEAD_LETTER, Status.CANCELED)
LOOK = 1_000  # open jobs counted per requester; `partial` reports that there are more
KEPT_S = 2.0
SEEN_MS = 86_400_000  # workers silent for longer are left out
router = APIRouter(tags=["overview"])


class QueueBody(BaseModel):
    """One queue. `oldest_ms`: the longest wait of a ready job, in milliseconds; null if no job is ready."""

    queue: str
    ready: int
    held: int = Field(description="Wait for their time, for another job or for a slot.")
    running: int
    oldest_ms: int | None
    paused: bool


class SpanBody(BaseModel):
    """The number of jobs that ended within one time span, by final status."""

    since: Moment
    succeeded: int
    failed: int
    dead_letter: int
    canceled: int


class ThroughputBody(BaseModel):
    """Ended jobs of the last 15 minutes, by time span. The last span is still running."""

    span_ms: int
    spans: list[SpanBody]


class KindBody(BaseModel):
    """Jobs of one kind that ended within the last 15 minutes, and all present dead letters of that kind."""

    kind: str
    succeeded: int
    failed: int
    dead_letter: int
    canceled: int
    dead_letters: int


class LoadBody(BaseModel):
    """A worker with its running jobs and last sign of life. `state` null: the worker is not enrolled."""

    worker_id: str
    running: int
    last_seen_at: Moment | None
    state: str | None
    labels: list[str]
    version: str


class OverviewBody(BaseModel):
    """Queues, throughput and workers. An admin key gets the figures of all jobs, other keys those of their own jobs."""

    at: Moment
    all: bool = Field(description="False: of one requester's jobs alone.")
    partial: bool = Field(description="True: there are more open jobs than were counted.")
    queues: list[QueueBody]
    throughput: ThroughputBody
    kinds: list[KindBody]
    workers: list[LoadBody]


@router.get(
    "/v1/overview",
    summary="How things stand",
    response_model=OverviewBody,
    responses=problems.responses(*ALWAYS),
)
async def overview(request: Request, who: Reader) -> JsonAnswer:
    """Read queues with the age of their oldest job, ended jobs by time and kind, dead letters, and workers' loads."""
    state, mine = state_of(request), who.sees
    store = state.engine.store
    cache = CACHE.of(state)
    window, queues, dead, loads = await asyncio.gather(
        cache.throughput.window(mine), cache.queues(mine), cache.dead_letters(mine), store.worker_loads(mine)
    )
    workers = await state.workers.list() if who.admin else []
    kinds = window.kinds
    body = {
        "at": window.at,
        "all": mine is None,
        "partial": queues.partial,
        "queues": _queues(queues.backlog, await store.paused_queues()),
        "throughput": {
            "span_ms": SPAN_MS,
            "spans": [{"since": at, **_ends(_by_status(counts.items()))} for at, counts in window.spans],
        },
        "kinds": [
            {"kind": kind, **_ends(kinds.get(kind, {})), "dead_letters": dead.get(kind, 0)}
            for kind in sorted(kinds.keys() | dead.keys())
        ],
        "workers": _workers(loads, workers, window.at),
    }
    return JsonAnswer(body)


class _Queues(NamedTuple):
    backlog: dict[str, Backlog]
    partial: bool = False


class OverviewCache:
    """Caches recent store reads, shared by all clients that watch the overview."""

    def __init__(self, state: ServerState) -> None:
        self._engine = state.engine
        self.throughput = Throughput(state.engine.store)
        self._queues: RecentCache[_Queues] = RecentCache(LOOK)
        self._dead: RecentCache[dict[str, int]] = RecentCache(LOOK)

    async def queues(self, requester_id: str | None) -> _Queues:
        """Return the backlog of all queues, or of one requester's open jobs."""
        name = _name(requester_id)
        queues = self._queues.get(name, KEPT_S)
        if queues is None:
            queues = _Queues(await self._engine.backlog()) if requester_id is None else await self._own(requester_id)
            self._queues.put(name, queues)
        return queues

    async def dead_letters(self, requester_id: str | None) -> dict[str, int]:
        """Return the number of present dead letters by kind."""
        name = _name(requester_id)
        counts = self._dead.get(name, KEPT_S)
        if counts is None:
            counts = await self._engine.store.dead_letters(requester_id)
            self._dead.put(name, counts)
        return counts

    async def _own(self, requester_id: str) -> _Queues:
        """Return the backlog of one requester, counted from its open jobs."""
        page = await self._engine.find(JobQuery(requester_id, OPEN, limit=LOOK))
        return _Queues(_backlog(page.jobs, await self._engine.store.now()), page.cursor is not None)


CACHE = PerServer(OverviewCache)


def _name(requester_id: str | None) -> str:
    return "all" if requester_id is None else f"of {requester_id}"


def _backlog(jobs: Iterable[Job], now: int) -> dict[str, Backlog]:
    queues: dict[str, Backlog] = {}
    for job in jobs:
        of = queues.get(job.queue, Backlog())
        if job.status is Status.RUNNING:
            of = of._replace(running=of.running + 1)
        elif job.held in (HoldReason.DEPENDENCY, HoldReason.SLOT) or (
            job.held is HoldReason.DELAY and job.run_at > now
        ):
            of = of._replace(held=of.held + 1)
        else:
            wait_ms = max(0, now - max(job.created_at, job.run_at))
            of = of._replace(ready=of.ready + 1, oldest_ms=max(wait_ms, of.oldest_ms or 0))
        queues[job.queue] = of
    return queues


def _queues(backlog: Mapping[str, Backlog], paused_queues: frozenset[str]) -> list[dict[str, Any]]:
    names = sorted(backlog.keys() | paused_queues)
    return [
        {"queue": name, **backlog.get(name, Backlog())._asdict(), "paused": name in paused_queues} for name in names
    ]


def _by_status(counts: Iterable[tuple[tuple[str, Status], int]]) -> dict[Status, int]:
    totals: dict[Status, int] = {}
    for (_, status), jobs in counts:
        totals[status] = totals.get(status, 0) + jobs
    return totals


def _ends(counts: Mapping[Status, int]) -> dict[str, int]:
    return {status.value: counts.get(status, 0) for status in ENDS}


def _workers(loads: Iterable[WorkerLoad], workers: Iterable[Worker], now: int) -> list[dict[str, Any]]:
    """Return workers that hold jobs, and workers that gave a sign of life within a day."""
    bodies: dict[str, dict[str, Any]] = {}
    for worker in workers:
        if (worker.last_seen_at or 0) + SEEN_MS > now and worker.revoked_at is None:
            state = None if worker.created_at is None else "draining" if worker.draining_at is not None else "active"
            bodies[worker.worker_id] = _load(worker.worker_id, 0, worker.last_seen_at, worker, state)
    for load in loads:
        name = name_of(load.worker_id)
        of = bodies.setdefault(name, _load(name, 0, None))
        of["running"] += load.running
        of["last_seen_at"] = max(of["last_seen_at"] or 0, load.heartbeat_at or 0) or None
    return [bodies[name] for name in sorted(bodies)]


def _load(
    name: str, running: int, at: int | None, worker: Worker | None = None, state: str | None = None
) -> dict[str, Any]:
    labels, version = (list(worker.labels), worker.version) if worker is not None else ([], "")
    body = {"worker_id": name, "running": running, "last_seen_at": at}
    return {**body, "state": state, "labels": labels, "version": version}


SPAN_MS = 10_000
SPANS = 90
LATE_MS = 5_000  # the end of a job may be written this late, so its span is read again until then
FRESH_S = 1.0  # cached counts are reused for this long
MOST_WINDOWS = 200

Counts = dict[tuple[str, Status], int]


class Window(NamedTuple):
    """Counts of ended jobs by time span, oldest span first. The last span is still running."""

    at: int
    spans: list[tuple[int, Counts]]

    @property
    def kinds(self) -> dict[str, dict[Status, int]]:
        """Counts of ended jobs in the whole window, by kind and status."""
        kinds: dict[str, dict[Status, int]] = {}
        for _, counts in self.spans:
            for (kind, status), jobs in counts.items():
                of_kind = kinds.setdefault(kind, {})
                of_kind[status] = of_kind.get(status, 0) + jobs
        return kinds


class Throughput:
    """Caches the windows of requesters, and the window of all requesters (None).

    The counts come from the store and therefore cover all processes. Spans that ended more than LATE_MS ago are not
    read again, so that a refresh costs only the jobs that ended since the last one.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._windows: OrderedDict[str | None, _WindowCounts] = OrderedDict()

    async def window(self, requester_id: str | None) -> Window:
        """Return the last 15 minutes of a requester's jobs; None means all requesters."""
        entry = self._windows.setdefault(requester_id, _WindowCounts())
        self._windows.move_to_end(requester_id)
        while len(self._windows) > MOST_WINDOWS:
            self._windows.popitem(last=False)
        async with entry.lock:
            if time.monotonic() - entry.read_at > FRESH_S:
                await self._read(entry, requester_id)
        first = entry.now - entry.now % SPAN_MS - (SPANS - 1) * SPAN_MS
        return Window(entry.now, [(at, entry.spans.get(at, {})) for at in range(first, entry.now + 1, SPAN_MS)])

    async def _read(self, entry: _WindowCounts, requester_id: str | None) -> None:
        now = await self._store.now()
        first = now - now % SPAN_MS - (SPANS - 1) * SPAN_MS
        since = max(first, entry.final_until)
        counts_by_span: dict[int, Counts] = {}
        for end in await self._store.ended_counts(since=since, span_ms=SPAN_MS, requester_id=requester_id):
            counts_by_span.setdefault(end.since, {})[end.kind, end.status] = end.jobs
        before = {at: counts for at, counts in entry.spans.items() if first <= at < since}
        entry.spans = {**before, **counts_by_span}
        entry.now, entry.read_at = now, time.monotonic()
        entry.final_until = (now - LATE_MS) - (now - LATE_MS) % SPAN_MS


class _WindowCounts:
    """The cached counts of one window. Spans before `final_until` are not read again."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.spans: dict[int, Counts] = {}
        self.final_until = 0
        self.now = 0
        self.read_at = float("-inf")
