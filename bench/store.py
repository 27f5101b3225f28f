"""Our stores beside hand-written loops: the same jobs through `Store` verbs alone, turn by turn in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.limit_postgres import PostgresLimit
from bench.limit_redis import RedisLimit
from bench.limit_sqlite import SqliteLimit
from bench.measure import LEASE_MS, PAYLOAD, RESULT, WORKER, Spread, keep, new_ids, say
from bench.places import fresh, server_versions
from bench.side import Rates, Side, cut, overlap, run
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewJob
from callsheet.store import store_from_url
from callsheet.store.protocol import ClaimRequest, Settled, Store

BATCHES = (1, 20, 100, 200, 500)
JOBS = {1: 1_000, 20: 5_000}
MANY = 10_000
QUICK_SHARE = 5
ROUNDS = 5
QUICK_ROUNDS = 3


class Subject(NamedTuple):
    """A store with one durability setting, and the hand-written loop that is compared with it."""

    name: str
    kind: str
    options: str
    limit: Callable[[str], Side[Any]]


SUBJECTS = (
    Subject("SQLite, synchronous=FULL", "sqlite", "", lambda url: SqliteLimit(url, "FULL")),
    Subject("SQLite, synchronous=NORMAL", "sqlite", "?synchronous=normal", lambda url: SqliteLimit(url, "NORMAL")),
    Subject("PostgreSQL, synchronous_commit=on", "postgres", "", PostgresLimit),
    Subject("Redis, appendfsync=everysec", "redis", "", RedisLimit),
)


class NotApplied(Exception):
    """A settlement of a claim that nobody contests was refused: the figures mean nothing."""


class Ours:
    """A Side: a store behind its protocol, with kernel settlements."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self.store: Store = store_from_url(self._url)
        await self.store.migrate()
        await self.store.open()

    async def close(self) -> None:
        await self.store.close()

    def batches(self, ids: Sequence[str], size: int) -> list[Sequence[NewJob]]:
        return [[NewJob(job_id, "bench", PAYLOAD) for job_id in part] for part in cut(ids, size)]

    async def enqueue(self, batches: Sequence[Sequence[NewJob]]) -> None:
        for batch in batches:
            await self.store.enqueue(batch)

    async def drain(self, size: int) -> int:
        request = ClaimRequest(WORKER, limit=size, lease_ms=LEASE_MS)

        async def finish(jobs: Sequence[Job]) -> None:
            answers = await self.store.settle([commands.succeed(job, RESULT) for job in jobs])
            if any(answer is not Settled.APPLIED for answer in answers):
                raise NotApplied(str(answers))

        return await overlap(lambda: self.store.claim(request), finish)


async def measure(kind: str, *, quick: bool) -> None:
    """All durabilities and batch sizes of one kind of store."""
    subjects = []
    for subject in SUBJECTS:
        if subject.kind == kind:
            rows = [await _compare(subject, size, quick=quick) for size in BATCHES]
            subjects.append({"name": subject.name, "rows": rows})
    keep(f"store-{kind}", {"subjects": subjects, "servers": await server_versions()}, quick=quick)


async def _compare(subject: Subject, size: int, *, quick: bool) -> dict[str, Any]:
    count = JOBS.get(size, MANY) // (QUICK_SHARE if quick else 1)
    ids = new_ids(count)
    ours: list[Rates] = []
    limit: list[Rates] = []
    for _ in range(QUICK_ROUNDS if quick else ROUNDS):
        async with fresh(subject.kind) as url:
            ours.append(await run(Ours(url + subject.options), ids, size))
        async with fresh(subject.kind) as url:
            limit.append(await run(subject.limit(url), ids, size))
    verbs = {verb: _verdict([r[i] for r in ours], [r[i] for r in limit]) for i, verb in enumerate(Rates._fields)}
    say(
        f"{subject.name}, batch {size}: "
        + "; ".join(
            f"{verb} {v['ours'].median:,.0f}/s of {v['limit'].median:,.0f}/s = {v['ratio']:.2f}"
            for verb, v in verbs.items()
        )
    )
    return {"batch": size, "jobs": count, **verbs}


def _verdict(ours: list[float], limit: list[float]) -> dict[str, Any]:
    mine, best = Spread.of(ours), Spread.of(limit)
    ratio = Spread.of([a / b for a, b in zip(ours, limit, strict=True)])
    return {"ours": mine, "limit": best, "ratio": ratio.median}
