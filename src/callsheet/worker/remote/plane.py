"""`RemoteJobSource`: the worker's `JobSource` interface over HTTP: claims, settlements and steps."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from callsheet.engine.resuming import Steps
from callsheet.kernel.errors import InvalidInput, JobNotFound, StaleClaim
from callsheet.kernel.job import Claim, Job
from callsheet.kernel.settlement import Settlement
from callsheet.kernel.wire import encode
from callsheet.store.protocol import ClaimRequest, Settled
from callsheet.worker.plane import PartlyRefused
from callsheet.worker.steps import STEP_LIMIT_BYTES

from .caller import PROTOCOL, Caller, MoveRefused, ServerAway, ServerRefused
from .wire import Lease, LeasedJob, Unreadable, move_of, read_claim

log = logging.getLogger("callsheet.worker")
BATCH = 200  # jobs of one claim, moves of one request: a fifth of what a server must take
BATCH_BYTES = 512 * 1024
SETTLE_S = 8.0
LOST_CODES = frozenset({"lease_lost", "job_not_found", "forbidden", "stale_claim"})
WRONG_BODY = frozenset({400, 413, 415, 422})  # what was sent is wrong, not who sent it
TOO_LATE = frozenset({403, 404, 409, 410})


class RemoteJobSource:
    """One worker's connection to a server. `on_refusal` is called with a response that ends this worker."""

    def __init__(self, caller: Caller, labels: Sequence[str], on_refusal: Callable[[ServerRefused], None]) -> None:
        self.store = RemoteStore()
        self.leases: dict[Claim, Lease] = {}
        self.wait_s = 0.0
        self._caller = caller
        self._labels = list(labels)
        self._on_refusal = on_refusal
        self._open_claim: dict[str, Any] | None = None  # a claim whose answer may have been lost
        self._asking: asyncio.Task[dict[str, Any]] | None = None
        self._let_go = False
        self._note = ""

    async def take(self, request: ClaimRequest) -> list[LeasedJob]:
        """Claim jobs, waiting up to `wait_s` at the server; raises ServerAway.

        The next call repeats an unanswered claim, with the same request id and size, so that the server answers with
        the same jobs.
        """
        claim = self._open_claim or self._new_claim(request)
        first, self._open_claim = self._open_claim is None, claim
        wait_s = 0.0 if self._let_go else self.wait_s
        body = {**claim, "max_wait_ms": round(wait_s * 1000), **({"first": True} if first else {})}
        try:
            answer = await self._ask(body, wait_s)
        except ServerRefused as refused:
            self._open_claim = None
            if not refused.ends_worker:
                raise ServerAway(f"this claim was refused, the next may not be: {refused}") from refused
            self._on_refusal(refused)
            return []
        leased_jobs, unreadable = read_claim(answer, self._caller.credentials.worker_id)
        self._open_claim = None
        self._heed(answer.get("note"))
        if leased_jobs and int(answer.get("protocol") or 1) < PROTOCOL:
            self._on_refusal(
                ServerRefused(200, "old_server", f"it does not speak protocol {PROTOCOL} of the control plane")
            )
            return []
        for entry in leased_jobs:
            self.leases[entry.job.claim] = entry.lease
        if unreadable:
            await self._dead_letter(unreadable)
        return leased_jobs

    async def take_at_once(self, request: ClaimRequest) -> list[LeasedJob]:
        """Claim ready jobs without waiting, including jobs that have just become due."""
        wait_s, self.wait_s = self.wait_s, 0.0
        try:
            return await self.take(request)
        finally:
            self.wait_s = wait_s

    def _heed(self, note: object) -> None:
        """Log a new note of the server for operators."""
        if isinstance(note, str) and note != self._note:
            self._note = note
            log.warning("the server says: %s", note)

    async def _dead_letter(self, unreadable: Sequence[Unreadable]) -> None:
        """Dead-letter jobs with unreadable payloads; if the request fails, their leases run out."""
        error = {"code": "payload_unusable", "retryable": False}
        moves = []
        for one in unreadable:
            log.error("job %s cannot be read: %s", one.lease.job_id, one.reason)
            details = {**error, "message": f"the worker could not read the job: {one.reason}"}
            moves.append({**one.lease._asdict(), "do": "fail", "bury": True, "error": details})
        try:
            await self._caller.call("moves", {"moves": moves})
        except (ServerAway, ServerRefused) as failure:
            log.warning("%d jobs could not be handed back, their leases will run out: %s", len(moves), failure)

    async def claim(self, request: ClaimRequest) -> list[Job]:
        """Claim jobs as `take` does, and return the jobs without their leases."""
        return [entry.job for entry in await self.take(request)]

    def let_go(self) -> None:
        """Stop waiting for jobs: cancel a waiting claim request; a repeat fetches jobs that it was given meanwhile."""
        self._let_go = True
        if self._asking is not None:
            self._asking.cancel()

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Send settlements; raises ServerAway, after which a retry is right, or PartlyRefused."""
        answers: list[Settled | Exception] = []
        for part in _parts(settlements):
            answers += await self._settle(part)
        results = [answer for answer in answers if not isinstance(answer, Exception)]
        if len(results) < len(answers):
            raise PartlyRefused(answers)
        return results

    async def get(self, job_id: str) -> Job:
        """Raise JobNotFound: a remote worker cannot read jobs beyond its claims."""
        raise JobNotFound(f"job {job_id} is not in reach")

    async def steps(self, job: Job) -> Steps:
        """Return the completed steps of a held job and of the jobs it resumes; raises StaleClaim or ServerAway."""
        job_id = job.job_id
        lease = self.leases.get(job.claim)
        if lease is None:
            raise StaleClaim(f"job {job_id} is not held any more; stop its work")
        proof = {"job_id": job_id, "lease_token": lease.lease_token}
        try:
            answer = await self._caller.patiently("checkpoints", proof, for_s=SETTLE_S)
        except ServerRefused as refused:
            if refused.status in TOO_LATE:
                raise StaleClaim(f"job {job_id} is not held any more; stop its work") from refused
            raise
        checkpoints = answer.get("checkpoints")
        if not isinstance(checkpoints, dict):
            raise ServerAway("the server's answer holds no steps")
        results = {name: encode(value, limit_bytes=STEP_LIMIT_BYTES) for name, value in checkpoints.items()}
        earlier = [str(one) for one in answer.get("resumes") or ()]  # a server that is older does not tell
        return Steps(results, (job_id, *earlier))

    def forget(self, claim: Claim) -> None:
        """Forget the lease of a finished claim."""
        self.leases.pop(claim, None)

    def _new_claim(self, request: ClaimRequest) -> dict[str, Any]:
        return {
            "streams": list(request.queues),
            "max_jobs": min(BATCH, request.limit),
            "labels": self._labels,
            "claim_request_id": uuid.uuid4().hex,
        }

    async def _ask(self, body: dict[str, Any], wait_s: float) -> dict[str, Any]:
        """Send a claim; if `let_go` cancels the waiting, repeat the claim at once without waiting."""
        self._asking = asking = asyncio.create_task(self._caller.call("claim", body, wait_s=wait_s))
        try:
            return await asking
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._let_go or (task is not None and task.cancelling()):
                asking.cancel()
                raise
        finally:
            self._asking = None
        again = {name: value for name, value in body.items() if name != "first"}
        try:
            return await self._caller.call("claim", {**again, "max_wait_ms": 0})
        except (ServerAway, ServerRefused) as error:
            log.debug("nothing is known of the last claim; its lease will run out: %s", error)
            return {"claimed": False}

    async def _settle(self, settlements: Sequence[Settlement]) -> list[Settled | Exception]:
        answers: list[Settled | Exception] = [Settled.STALE] * len(settlements)
        moves, places = [], []
        for place, settlement in enumerate(settlements):
            lease = self.leases.get(Claim(settlement.job_id, settlement.claim_version))
            if lease is None:
                continue
            try:
                moves.append({**lease._asdict(), **move_of(settlement)})
            except (InvalidInput, ValueError) as error:
                answers[place] = error
            else:
                places.append(place)
        for place, answer in zip(places, await self._send(moves) if moves else [], strict=True):
            answers[place] = answer
        return answers

    async def _send(self, moves: list[dict[str, Any]]) -> list[Settled | Exception]:
        try:
            answer = await self._caller.patiently("moves", {"moves": moves}, for_s=SETTLE_S)
        except ServerRefused as refused:
            if refused.status in WRONG_BODY:
                raise
            if not refused.ends_worker:
                raise ServerAway(f"these moves were refused, and may be taken later: {refused}") from refused
            self._on_refusal(refused)
            return [Settled.STALE] * len(moves)
        results = answer.get("answers")
        if not isinstance(results, list) or len(results) != len(moves):
            raise ServerAway("the server's answer does not tell what became of each move")
        return [_read_answer(one) for one in results]


class RemoteStore:
    """Stands for the server's store; gives the batch size."""

    batch = BATCH


def _read_answer(fields: dict[str, Any]) -> Settled | Exception:
    if fields.get("ok"):
        return Settled.REPEATED if fields.get("repeated") else Settled.APPLIED
    code = str(fields.get("code") or "refused")
    return (
        Settled.STALE if code in LOST_CODES else MoveRefused(code, str(fields.get("detail") or "the server refused it"))
    )


def _parts(settlements: Sequence[Settlement]) -> Iterator[list[Settlement]]:
    """Split settlements into batches within the server's size limits."""
    part: list[Settlement] = []
    size = 0
    for settlement in settlements:
        own = _size(settlement)
        if part and (len(part) >= BATCH or size + own > BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(settlement)
        size += own
    if part:
        yield part


def _size(settlement: Settlement) -> int:
    """Estimate a settlement's size on the wire in bytes."""
    texts = [settlement.result or "", settlement.error or ""]
    texts += [settlement.event.data] if settlement.event is not None else []
    texts += [settlement.checkpoint[1]] if settlement.checkpoint is not None else []
    return 500 + sum(map(len, texts)) + sum(500 + len(new.payload) for new in settlement.follow_ups)
