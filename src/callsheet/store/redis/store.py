"""The Redis store: the protocol's verbs, each one script (or a read without a script)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Self

from callsheet.kernel.callbacks import claim_callback
from callsheet.kernel.contracts import WITH_CALLBACKS
from callsheet.kernel.errors import SchemaMismatch, StoreError
from callsheet.kernel.job import Attempt, Claim, Event, Job, Json, NewJob, Outcome, Status
from callsheet.kernel.settlement import Settlement
from callsheet.kernel.workers import name_of, silence_of
from callsheet.store.clock import TOLERANCE_MS, ClockStep, Rebased
from callsheet.store.hints import Hints, NoDoor
from callsheet.store.protocol import (
    Backlog,
    ClaimRequest,
    Document,
    Enqueued,
    HeartbeatResult,
    Hint,
    IdempotencyRecord,
    JobPage,
    JobQuery,
    ReadyPage,
    Settled,
)
from callsheet.store.rows import line_place, ready_page, running_attempt

from . import arguments
from .bound import Walks
from .client import Client, Target, translated
from .door import QUEUE, StreamDoor
from .keys import FAMILIES, SCHEMA, SCHEMA_NAMES, idempotency_name
from .listener import Listener, Tail
from .records import (
    answers_of,
    as_map,
    attempt_of,
    claimed_job_of,
    event_of,
    is_run_by_others,
    job_of,
    with_event_number,
)
from .side_records import SETTLED, AuditLog, CredentialRecords, Documents, OutboxEvents, conflict
from .tally import Tallies

LOOK_AT_JOBS, LOOK_AT_TEXTS = 2_000, 1_000  # rows that one script of `find` scans


class RedisStore(OutboxEvents, CredentialRecords, Documents, AuditLog, Tallies):
    """The whole protocol on one Redis or Valkey server (or one slot of a cluster)."""

    batch = 500
    streams = True

    def __init__(self, target: Target) -> None:
        self.target = target
        self.durability = "Redis, durability unknown until it is open"
        self._keys = target.keys
        self._client = Client(target)
        self._walks = Walks(self._client)
        self._hints = Hints()
        self._listener = Listener(self._client, self._hints)
        self._tail = Tail(self._client, self._hints)
        self._doors: dict[str, StreamDoor] = {}
        self._cursors: list[str] = []
        self._relay_cursor = "0"
        self._clear_cursor = "-"

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return a store for `redis://host:port/db`; raises UnknownStore.

        `?prefix={cs0}:` precedes every key, `?foreign_idle_ms=` is the patience with silent foreign workers.
        """
        return cls(Target.from_url(url))

    async def open(self) -> Self:
        """Connect, check the server and its settings, and migrate; raises SchemaMismatch for a newer schema."""
        await self._client.check_version()
        self.durability = await self._client.durability()
        await self.migrate()
        return self

    async def close(self) -> None:
        """Stop listening and disconnect."""
        await self._listener.stop()
        await self._tail.stop()
        await self._client.close()

    async def migrate(self) -> list[str]:
        """Record the version of the data model; return the names of new versions."""
        have = int(await self._client.run("migrate", None, SCHEMA))
        if have > SCHEMA:
            raise SchemaMismatch(f"the database has schema {have}, this program knows {SCHEMA}; upgrade callsheet")
        return [name for number, name in SCHEMA_NAMES.items() if number > have]

    async def now(self) -> int:
        """Return the time of the server's clock."""
        with translated():
            seconds, microseconds = await self._client.redis.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def enqueue(
        self,
        batch: Sequence[NewJob],
        *,
        depth_limit: int | None = None,
        quotas: Mapping[str, int] | None = None,
        now: int | None = None,
    ) -> list[Enqueued]:
        if not batch:
            return []
        live = self._listener.live
        limits = json.dumps(dict(quotas)) if quotas else ""
        head = (len(batch), depth_limit or 0, limits)
        reply = await self._client.run("enqueue", now, *head, *arguments.of_jobs(batch))
        answers = [
            Enqueued(new.job_id, created=True)
            if answer == 1
            else Enqueued(answer[0], created=False, response=answer[1])
            for new, answer in zip(batch, answers_of(reply), strict=True)
        ]
        if not live:
            self._hints.send(Hint(frozenset({new.queue for new in batch})))
        return answers

    async def claim(self, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        jobs = await self._claim(request, now)
        if calling := [job for job in jobs if job.contract in WITH_CALLBACKS]:
            with contextlib.suppress(StoreError):  # the claims are committed; the next settlement writes the callback
                await self._tell_older(calling, now)
        return jobs

    async def _tell_older(self, jobs: Sequence[Job], now: int | None) -> None:
        """Write claim callbacks of jobs enqueued by an older version, whose hashes have no `on_claim`."""
        pipe = self._client.redis.pipeline(transaction=False)
        for job in jobs:
            pipe.hexists(self._keys.job(job.job_id), "on_claim")
        with translated():
            answers = await pipe.execute()
        older = [job for job, is_told in zip(jobs, answers, strict=True) if not is_told]
        callbacks = [(job, callback) for job in older if (callback := claim_callback(job)) is not None]
        running = Status.RUNNING
        moves = [Settlement(job.job_id, job.claim_version, running, running, outbox=(out,)) for job, out in callbacks]
        if moves:
            await self.settle(moves, now=now)

    async def _claim(self, request: ClaimRequest, now: int | None) -> list[Job]:
        r = request
        if r.tenants is not None:
            return await self._walks.claim(r, now) if r.limit > 0 else []
        start = "1" if r.start else ""
        door = self._doors.get(name_of(r.worker_id)) if self._doors else None
        messages = door.take() if door is not None else []
        sources = (*dict.fromkeys(r.queues), "", *messages) if messages else dict.fromkeys(r.queues)
        try:
            at, *rows = await self._client.run("claim", now, r.worker_id, r.limit, r.lease_ms, start, *sources)
        except StoreError:
            if door is not None:
                door.put_back(messages)
            raise
        return [claimed_job_of(as_map(flat), r, int(at)) for flat in rows]

    async def heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, silence_ms: int | None = None, now: int | None = None
    ) -> list[HeartbeatResult]:
        if not claims:
            return []
        lengths_ms = lease_ms, silence_of(lease_ms) if silence_ms is None else silence_ms
        beats = await self._client.run("heartbeat", now, *lengths_ms, *(part for claim in claims for part in claim))
        return [HeartbeatResult(beat > 0, beat > 1) for beat in beats]

    async def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        if not settlements:
            return []
        live = self._listener.live
        reply = await self._client.run("settle", now, *arguments.of_settlements(settlements))
        answers = [SETTLED[code] for code in answers_of(reply)]
        if not live:
            self._hints.send(Hint(jobs=frozenset({s.job_id for s in settlements})))
        return answers

    async def with_expired_lease(self, limit: int, *, now: int | None = None) -> list[Job]:
        """See the protocol; includes idle messages of foreign workers."""
        idle_ms = self.target.foreign_idle_ms
        *rows, self._cursors = await self._client.run("with_expired_lease", now, limit, idle_ms, *self._cursors)
        return [job_of(as_map(flat)) for flat in rows]

    async def running_of(self, worker_id: str, limit: int) -> list[Job]:
        rows = await self._client.run("running_of", None, worker_id, limit)
        return [job_of(as_map(flat)) for flat in rows]

    async def ready_jobs(self, limit: int, *, cursor: str | None = None) -> ReadyPage:
        queue, priority, message = line_place(cursor)
        rows = await self._client.run("ready_jobs", None, limit, queue, priority, message)
        return ready_page([(job_id, line, int(version), *place) for job_id, line, version, *place in rows], limit)

    async def with_failed_dependency(self, limit: int) -> list[Job]:
        with translated():
            ids = await self._client.redis.zrange(self._keys.jobs("broken"), 0, limit - 1) if limit > 0 else []
        jobs = [job for job in await self.get(ids) if job is not None]
        return [job for job in jobs if job.status is Status.QUEUED and job.broken_by is not None]

    async def promote(self, *, now: int | None = None) -> int:
        """See the protocol; also sends a new message for a ready job whose message is gone."""
        count, self._relay_cursor, self._clear_cursor = await self._client.run(
            "promote", now, self._relay_cursor, self._clear_cursor
        )
        return int(count)

    async def prune(self, *, ended_before: int, limit: int, now: int | None = None) -> int:
        return int(await self._client.run("prune", now, ended_before, limit))

    async def delete(self, claims: Sequence[Claim]) -> int:
        if not claims:
            return 0
        return int(await self._client.run("delete", None, *(part for claim in claims for part in claim)))

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        hashes = await self._client.hashes([self._keys.job(job_id) for job_id in job_ids])
        jobs = [job_of({"job_id": id_, **h}) if h else None for id_, h in zip(job_ids, hashes, strict=True)]
        foreign = {job.job_id for job in jobs if job is not None and is_run_by_others(job)}
        return await self._with_events_of_others(jobs, foreign) if foreign else jobs

    async def _with_events_of_others(self, jobs: list[Job | None], foreign: set[str]) -> list[Job | None]:
        """Return jobs of foreign workers with the numbers of their last events, which the hash lacks.

        The number of an ended job counts its terminal event even before the event exists.
        """
        pipe = self._client.redis.pipeline(transaction=False)
        for job_id in foreign:
            pipe.xlen(self._keys.job(job_id, "events"))
            pipe.xrevrange(self._keys.job(job_id, "events"), count=1)
        with translated():
            answers = iter(await pipe.execute())
        last = {job_id: (count, event) for job_id, count, event in zip(foreign, answers, answers, strict=True)}
        return [
            with_event_number(job, *last[job.job_id]) if job is not None and job.job_id in last else job for job in jobs
        ]

    async def find(self, query: JobQuery) -> JobPage:
        q = query
        key = f"jobs:of:{q.requester_id}" if q.requester_id else "jobs:all"
        if q.statuses == (Status.DEAD_LETTER,):  # foreign workers' failed jobs may be missing from a list
            key = "jobs:dead"
        statuses = f" {' '.join(q.statuses)} " if q.statuses else None
        filters = [
            "" if value is None else f"={value}"
            for value in (q.requester_id, q.kind, q.queue, q.contract, q.created_from, q.created_to, statuses, q.needle)
        ]
        filters.append("" if q.has_begun is None else f"={int(q.has_begun)}")
        jobs: list[Job] = []
        most = LOOK_AT_TEXTS if q.needle else LOOK_AT_JOBS
        cursor, looks = q.cursor or "", q.scan_limit
        while len(jobs) < q.limit and (looks is None or looks > 0):
            look = most if looks is None else min(most, looks)
            *rows, cursor = await self._client.run("find", None, key, cursor, q.limit - len(jobs), look, *filters)
            jobs += [job_of(as_map(flat)) for flat in rows]
            if not cursor:
                break
            looks = None if looks is None else looks - look
        return JobPage(jobs, cursor or None)

    async def counts(self) -> dict[str, dict[Status, int]]:
        (fields,) = await self._client.hashes([self._keys.jobs("counts")])
        counts: dict[str, dict[Status, int]] = {}
        for field, count in fields.items():
            status, _, queue = field.partition(":")
            if int(count):
                counts.setdefault(queue, {})[Status(status)] = int(count)
        return counts

    async def queued_of(self, requester_ids: Sequence[str], *, most: int) -> list[int]:
        counts = await self._client.run("queued_of", None, *requester_ids) if requester_ids else []
        return [min(most, int(count)) for count in counts]

    async def backlog(self, *, now: int | None = None) -> dict[str, Backlog]:
        """See the protocol; includes jobs that foreign gateways and workers enqueued or took."""
        rows = await self._client.run("backlog", now)
        return {queue: Backlog(ready, held, runs, int(age) if age else None) for queue, ready, held, runs, age in rows}

    async def attempts(self, job_id: str) -> list[Attempt]:
        with translated():
            rows = await self._client.redis.lrange(self._keys.job(job_id, "attempts"), 0, -1)
        (fields,) = await self._client.hashes([self._keys.job(job_id)])
        (job,) = await self.get([job_id])
        running = [running_attempt(job)] if job is not None and job.has_started else []
        if job is not None and job.status is Status.SUCCEEDED and fields.get("outcome"):
            attempt = running_attempt(job)._replace(started_at=int(fields["attempt_started_at"]))
            running = [attempt._replace(ended_at=job.ended_at, outcome=Outcome.SUCCEEDED)]
        return [attempt_of(job_id, row) for row in rows] + running

    async def checkpoints(self, job_id: str) -> dict[str, Json]:
        (fields,) = await self._client.hashes([self._keys.job(job_id, "checkpoints")])
        return dict(sorted(fields.items()))

    async def events(self, after: Mapping[str, int], limit: int) -> list[Event]:
        """See the protocol; entry n of a job's stream is event n, from any writer."""
        if not after:
            return []
        rows = await self._client.run("events", None, limit, *(part for item in after.items() for part in item))
        return [
            event_of(job_id, first + i, entry) for job_id, first, *entries in rows for i, entry in enumerate(entries)
        ]

    async def hints(self) -> AsyncIterator[Hint]:
        """Yield hints from every process, by publish and subscribe."""
        self._listener.start()
        async for hint in self._hints.receive():
            yield hint

    async def listen_for(self, job_ids: Collection[str]) -> None:
        """See the protocol; a separate connection reads the events of foreign workers."""
        self._tail.listen_for(job_ids)

    async def door(self, worker_id: str, queues: Sequence[str]) -> NoDoor | StreamDoor:
        """See the protocol; foreign gateways and workers use only the queue `default` at priority 0."""
        if QUEUE not in queues:
            return NoDoor()
        door = self._doors[worker_id] = StreamDoor(self._client, self._hints, worker_id)
        return door

    async def idempotency_record(
        self, requester_id: str, key: str, *, now: int | None = None
    ) -> IdempotencyRecord | None:
        name = self._keys.prefix + idempotency_name(requester_id, key)
        with translated():
            if await self._client.redis.type(name) not in ("hash", b"hash"):
                return None  # no record, or a foreign gateway's record, which has no response
        (row,) = await self._client.hashes([name])
        at = await self.now() if now is None else now
        until = row.get("expires_at", "")
        if "request_hash" not in row or not until.isdecimal() or int(until) <= at:
            return None
        return IdempotencyRecord(row["request_hash"], row["job_id"], row["response"], int(row["expires_at"]))

    async def pause(self, queue: str, *, paused: bool) -> None:
        redis = self._client.redis
        with translated():
            await (redis.sadd if paused else redis.srem)(self._keys.jobs("paused"), queue)
            await redis.publish(self._client.channel, "{}")
        self._hints.send(Hint(frozenset({queue})))

    async def paused_queues(self) -> frozenset[str]:
        with translated():
            return frozenset(await self._client.redis.smembers(self._keys.jobs("paused")))

    async def rebase(self, step: ClockStep, mark: Document) -> Rebased:
        times = (step.before, step.after, step.since or 0, TOLERANCE_MS)
        counts = await self._client.run("rebase", None, *mark, *times)
        if not counts:
            raise conflict(mark)
        return Rebased(*map(int, counts))

    async def empty(self) -> None:
        """Delete every key of this store except the schema's version; other keys of the database stay. For tests."""
        families = tuple(f"{self._keys.prefix}{name}:" for name in FAMILIES)
        redis = self._client.redis
        with translated():
            keys = [key async for key in redis.scan_iter(f"{_as_glob(self._keys.prefix)}*", count=1_000)]
            ours = [key for key in keys if key.startswith(families)]
            for i in range(0, len(ours), 1_000):
                await redis.unlink(*ours[i : i + 1_000])


def _as_glob(text: str) -> str:
    """Return text as a glob pattern that matches only this text."""
    return "".join(f"\\{c}" if c in "*?[]^\\" else c for c in text)
