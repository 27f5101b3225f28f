"""Claims over HTTP: long polling, repeatable requests for lost answers, worker labels, and fair turns between lanes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request

from callsheet.engine.lanes import lane_of
from callsheet.engine.silent_workers import REMOTE_BEAT_S, remote_silence_ms
from callsheet.http.state import PerServer, ServerState
from callsheet.kernel import commands
from callsheet.kernel.job import Job
from callsheet.store.protocol import ClaimRequest

from . import hand_backs, leases, versions
from .models import ClaimBody
from .waiting import Waiting, Wish

if TYPE_CHECKING:
    from .binding import WorkerIdentity

ROUNDS = 20  # a claim skips unusable jobs this many times
NOTE = 500
LEASE_S = 30.0
BEAT_S = REMOTE_BEAT_S
PROVISIONAL_S = 10.0  # lease until the first heartbeat; a worker that never got the answer blocks its job this long
JOB_FIELDS = (
        "queue", "priority", "contract", "stage", "progress", "retry", "created_at", "run_at", "attempt_started_at",
        "requester_id", "correlation_id", "lease_losses", "refresh_count", "event_seq", "event_ms", "updated_at",
        "started_at", "unique_key", "concurrency_key", "ttl_s")  # fmt: skip


class Terms(NamedTuple):
    """Seconds of a lease, of the heartbeat interval, and of the provisional lease before a claim's first heartbeat."""

    lease_s: float
    beat_s: float
    provisional_s: float

    @property
    def lease_ms(self) -> int:
        """Return the lease in milliseconds."""
        return round(self.lease_s * 1000)

    @property
    def silence_ms(self) -> int:
        """Return how many milliseconds a worker may be silent while its job is being cancelled."""
        return min(self.lease_ms, remote_silence_ms(self.beat_s))

    @property
    def provisional_ms(self) -> int:
        """Return the provisional lease in milliseconds."""
        return round(self.provisional_s * 1000)

    def told_lease_s(self, protocol: int) -> float:
        """Return the lease seconds in a claim's answer: the provisional lease in protocol 1, else the full lease."""
        return self.lease_s if protocol > versions.BARE else self.provisional_s


class Turn:
    """All requests of one repeatable claim: only the latest request may take jobs, earlier ones stop waiting."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.last: Claimer | None = None


class Turns(dict[str, Turn]):
    """The turns of the claims that this process is serving, by claim owner."""


class Claimer:
    """One claim request of one worker. `run` returns the answer in the contract's words."""

    def __init__(self, request: Request, state: ServerState, body: ClaimBody, who: WorkerIdentity) -> None:
        self._request, self._state, self._body, self._who = request, state, body, who
        self._engine = state.engine
        self._terms = terms_of(state)
        self._turn = Turn()
        self._worker = who.holder(body.worker_id)
        self._contents: dict[str, dict[str, Any]] = {}  # payload and inputs by job id, for the answer
        transport = state.engine.transport
        streams = body.streams if transport is None else list(dict.fromkeys(map(transport.queue_of, body.streams)))
        self._streams = who.check_streams(streams)

    async def run(self) -> dict[str, Any]:
        """Return the claim's answer. If the worker hung up and cannot repeat the claim, release its jobs."""
        token = await self._token()
        owner = leases.owner(self._worker.worker_id, token)
        turns = TURNS.of(self._state)
        self._turn = turns.setdefault(owner, self._turn)
        self._turn.last = self
        try:
            jobs = await self._find(owner)
        finally:
            if self._turn.last is self:
                turns.pop(owner, None)
        if jobs and await self._request.is_disconnected() and self._body.claim_request_id is None:
            await self._engine.settle([commands.release(job) for job in jobs])  # no client is left to run these jobs
        return await self._answer(jobs, token)

    async def _find(self, owner: str) -> list[Job]:
        async with self._turn.lock:  # an earlier request of the same name may be taking jobs
            jobs = await self._again(owner)
        if jobs or self._who.draining:
            return jobs
        wish, wait_s = Wish(frozenset(self._streams), self._who.tenants), self._body.max_wait_ms / 1000
        return await waiting_of(self._state).claim(wish, wait_s, self._alive, lambda: self._take(owner))

    async def _token(self) -> str:
        if self._body.claim_request_id is None:
            return leases.new_token()
        return await tokens_of(self._state).repeatable(self._worker.worker_id, self._body.claim_request_id)

    async def _again(self, owner: str) -> list[Job]:
        """Return jobs that an earlier request with this `claim_request_id` claimed: its answer may be lost."""
        if self._body.claim_request_id is None or self._body.first:
            return []
        held = await self._engine.store.running_of(owner, self._body.max_jobs)
        jobs = [job for job in held if self._worker.may_have(job)]
        return await self._usable(jobs)

    async def _alive(self) -> bool:
        is_gone = self._turn.last is not self or self._state.stopping.is_set()
        return not is_gone and not await self._request.is_disconnected()

    async def _take(self, owner: str) -> list[Job]:
        """Claim jobs, up to ROUNDS times, until one has a payload that can be sent or no job is due."""
        for _ in range(ROUNDS):
            claimed_jobs = await self._claim(owner)
            jobs = await self._usable(await hand_backs.set_aside(self._engine, self._worker.worker_id, claimed_jobs))
            if jobs or not claimed_jobs:
                return jobs
        return []

    async def _claim(self, owner: str) -> list[Job]:
        lanes, body, tenants = self._engine.lanes, self._body, self._who.tenants
        queues = await lanes.expand(self._streams, body.labels, tenants)
        request = ClaimRequest(owner, queues, body.max_jobs, self._terms.provisional_ms, tenants=tenants)
        request = request._replace(thorough=not body.max_wait_ms)  # a claim that does not wait must see every due job
        async with self._turn.lock:
            if self._turn.last is not self:
                return []
            jobs = await self._engine.claim(request)
        lanes.note_claim(queues, {job.queue for job in jobs}, short=len(jobs) < body.max_jobs, tenants=tenants)
        return jobs

    async def _usable(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs whose payload can be sent to a worker; each other job is ended or released."""
        self._contents = await hand_backs.usable(self._state, jobs) if jobs else {}
        return [job for job in jobs if job.job_id in self._contents]

    async def _answer(self, jobs: list[Job], token: str) -> dict[str, Any]:
        extras = {"drain": True} if self._who.draining else {}
        if not jobs:
            return {"claimed": False, **extras, **self._note()}
        transport = self._engine.transport
        messages = await transport.places_of(jobs) if transport is not None else {}
        jobs_told = []
        for job in jobs:
            message = messages.get(job.job_id) or (job.queue, f"{job.job_id}-{job.claim_version}")
            jobs_told.append({**_job(job, token, message), **self._times(), **self._contents[job.job_id]})
        batch = {"jobs": jobs_told} if self._body.max_jobs > 1 else {}
        return {"claimed": True, **jobs_told[0], **batch, **extras}

    def _note(self) -> dict[str, str]:
        """Return a note for a tenant-bound worker without a job: other tenants' jobs may wait in its streams."""
        if self._who.tenants is None:
            return {}
        streams = ", ".join(self._streams)
        note = f"no job of {self._who.bound_to} waits in {streams}; this worker is given jobs of no other tenant"
        return {"note": note[:NOTE]}

    def _times(self) -> dict[str, float]:
        terms = self._terms
        return {
            "lease_ttl_seconds": _short(terms.told_lease_s(self._body.protocol)),
            "heartbeat_interval_seconds": _short(terms.beat_s),
            "lease_expires_in_ms": terms.provisional_ms,
            "heartbeat_every_ms": round(terms.beat_s * 1000),
        }


def _short(seconds: float) -> float:
    """Return whole seconds as an integer, because some clients cannot read a fraction."""
    return int(seconds) if seconds.is_integer() else seconds


def _job(job: Job, token: str, message: tuple[str, str]) -> dict[str, Any]:
    stream, message_id = message
    return {
        "job_id": job.job_id,
        "attempt_id": str(job.claim_version),
        "lease_token": token,
        "stream": lane_of(stream).queue if stream == job.queue else stream,
        "message_id": message_id,
        "task": job.kind,
        "attempt": job.attempt_count,
        "max_attempts": job.max_attempts,
        "fence": job.claim_version,
        "cancel": job.cancel_requested_at is not None,
        "job": {name: getattr(job, name) for name in JOB_FIELDS},
    }


def _create_waiting(state: ServerState) -> Waiting:
    waiting = Waiting(state.engine)
    state.on_stop.append(waiting.let_go)
    return waiting


TERMS = PerServer(lambda _: Terms(LEASE_S, BEAT_S, PROVISIONAL_S))
WAITING = PerServer(_create_waiting)
TOKENS = PerServer(lambda state: leases.Tokens(state.engine.store, state.engine.sealer))
TURNS = PerServer(lambda _: Turns())


def terms_of(state: ServerState) -> Terms:
    """Return this process's terms: those that a test kit put there, else this module's constants."""
    return TERMS.get(state) or Terms(LEASE_S, BEAT_S, PROVISIONAL_S)


def waiting_of(state: ServerState) -> Waiting:
    """Return this process's parked requests, created on first use and cancelled when the process stops."""
    return WAITING.of(state)


def tokens_of(state: ServerState) -> leases.Tokens:
    """Return this process's token maker, created on first use."""
    return TOKENS.of(state)
