"""The verbs that both SQL stores read alike: one statement of the store's `queries.sql`, and its rows as records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from callsheet.kernel.job import Job, Status

from .audit import AuditPage, AuditQuery
from .hints import NoDoor
from .protocol import Backlog, Document, EndedCount, JobPage, JobQuery, ReadyPage, WorkerLoad
from .queries import Queries
from .rows import audit_page, job_of, line_place, next_cursor, ready_page


class SqlReads:
    """Verbs of `store/protocol.py`. A store adds how it fetches rows, and the time that it passes to a statement."""

    _queries: Queries

    async def _fetch(self, sql: str, *parameters: object) -> Sequence[Sequence[Any]]:
        raise NotImplementedError

    def _at(self, now: int | None) -> int | None:
        """Return the time for a statement; None if the statement takes the server's time."""
        return now

    def _statuses(self, statuses: tuple[Status, ...]) -> object:
        raise NotImplementedError

    async def with_expired_lease(self, limit: int, *, now: int | None = None) -> list[Job]:
        return await self._jobs(self._queries.with_expired_lease, self._at(now), limit)

    async def running_of(self, worker_id: str, limit: int) -> list[Job]:
        return await self._jobs(self._queries.running_of, worker_id, limit)

    async def with_failed_dependency(self, limit: int) -> list[Job]:
        return await self._jobs(self._queries.with_failed_dependency, limit)

    async def _jobs(self, sql: str, *parameters: object) -> list[Job]:
        return [job_of(row) for row in await self._fetch(sql, *parameters)]

    async def ready_jobs(self, limit: int, *, cursor: str | None = None) -> ReadyPage:
        return ready_page(await self._fetch(self._queries.ready_jobs, *line_place(cursor), limit), limit)

    async def find(self, query: JobQuery) -> JobPage:
        queries = self._queries
        sql = queries.find_of_requester if query.requester_id else queries.find
        if query.ended_badly:
            sql = queries.find_ended_badly
        top, floor = int(query.cursor) if query.cursor else None, None
        if query.scan_limit is not None and sql is queries.find:
            last = await self._fetch(queries.find_floor, top, query.scan_limit)
            floor = last[0][0] if last else None
        rows = await self._fetch(
            sql,
            top,
            query.requester_id,
            query.kind,
            query.queue,
            query.contract,
            query.created_from,
            query.created_to,
            self._statuses(query.statuses),
            query.limit,
            query.needle,
            floor,
            query.has_begun,
        )
        return JobPage([job_of(row) for row in rows], next_cursor(rows, query.limit, floor))

    async def counts(self) -> dict[str, dict[Status, int]]:
        counts: dict[str, dict[Status, int]] = {}
        for queue, status, count in await self._fetch(self._queries.counts):
            counts.setdefault(queue, {})[Status(status)] = count
        return counts

    async def backlog(self, *, now: int | None = None) -> dict[str, Backlog]:
        rows = await self._fetch(self._queries.backlog, self._at(now))
        return {queue: Backlog(*numbers) for queue, *numbers in rows}

    async def ended_counts(self, *, since: int, span_ms: int, requester_id: str | None = None) -> list[EndedCount]:
        rows = await self._fetch(self._queries.ended_counts, since, span_ms, requester_id)
        return [EndedCount(at, kind, Status(status), count) for at, kind, status, count in rows]

    async def dead_letters(self, requester_id: str | None = None) -> dict[str, int]:
        return dict(await self._pairs(self._queries.dead_letters, requester_id))

    async def worker_loads(self, requester_id: str | None = None) -> list[WorkerLoad]:
        return [WorkerLoad(*row) for row in await self._fetch(self._queries.worker_loads, requester_id)]

    async def paused_queues(self) -> frozenset[str]:
        return frozenset(row[0] for row in await self._fetch(self._queries.paused_queues))

    async def credential_keks(self) -> dict[str, int]:
        return dict(await self._pairs(self._queries.credential_keks))

    async def _pairs(self, sql: str, *parameters: object) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in await self._fetch(sql, *parameters)]

    async def documents(self, kind: str, id: str | None = None) -> list[Document]:
        if id is not None and "\0" in id:  # PostgreSQL text cannot contain it
            return []
        return [Document(*row) for row in await self._fetch(self._queries.documents, kind, id)]

    async def audit_find(self, query: AuditQuery) -> AuditPage:
        queries = self._queries
        is_family = query.action.endswith(".") if query.action else False
        rows = await self._fetch(
            queries.audit_find if query.requester_id is None else queries.audit_find_of_requester,
            query.requester_id,
            None if is_family else query.action,
            query.action if is_family else None,
            query.actor,
            query.since,
            query.until,
            *(query.place or (None, None)),
            query.limit,
        )
        return audit_page(rows, query.limit)

    async def listen_for(self, job_ids: Collection[str]) -> None:
        """Do nothing: every event passes through the store."""

    async def door(self, worker_id: str, queues: Sequence[str]) -> NoDoor:  # noqa: ARG002 - the protocol's
        """Return a door that is never needed: every job passes through the store."""
        return NoDoor()
