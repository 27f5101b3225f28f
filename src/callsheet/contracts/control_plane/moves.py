"""Turns workers' reports (moves) into settlements: the server's kernel decides, based on the server's own job record.

Many moves of many jobs need one read and one write. A refused move affects no other move.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.http import attempt_files
from callsheet.http.problems import Problem, of_error
from callsheet.kernel import commands
from callsheet.kernel.apply import after_settlement
from callsheet.kernel.errors import CallsheetError, InvalidInput, StoreError
from callsheet.kernel.events import check_own
from callsheet.kernel.handing_on import hand_on
from callsheet.kernel.job import RESERVED_PREFIX, Job, NewEvent, Outcome, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import Settlement
from callsheet.kernel.wire import clean, encode
from callsheet.store.protocol import Settled

from . import hand_backs, logs
from .artifacts import adopt
from .claims import waiting_of
from .follow_ups import Places, follow_ups_of, places_of
from .leases import Lease, Proof, prove
from .models import Chunk, LogEnd, MoveBody

if TYPE_CHECKING:
    from callsheet.http.state import ServerState

    from .binding import Holder

RESULT_BYTES = 1024 * 1024
BAD_ENDS = frozenset({Outcome.FAILED, Outcome.RETRIED, Outcome.DEAD_LETTERED, Outcome.CANCELED})
ENDS_OF: dict[str, frozenset[Outcome]] = {
    "complete": frozenset({Outcome.SUCCEEDED}),
    "fail": BAD_ENDS,
    "cancel": BAD_ENDS,
    "release": frozenset({Outcome.RELEASED, Outcome.CANCELED}),
}
Answer = dict[str, Any]


class Decision(NamedTuple):
    """A move that is ready to write: its settlements and the answer to send afterwards."""

    settlements: tuple[Settlement, ...]
    answer: Answer
    queue: str = ""

    @property
    def fills(self) -> set[str]:
        """Return the queues that gain a job due at once when this move is written."""
        queues = {new.queue for s in self.settlements for new in s.follow_ups if not new.delay_ms}
        last = self.settlements[-1]
        return queues | {self.queue} if last.status is Status.QUEUED and not last.delay_ms else queues


async def apply(state: ServerState, worker: Holder, reports: Sequence[MoveBody | Problem]) -> list[Answer | Problem]:
    """Prove the leases, decide the moves, write them; returns each move's answer or the Problem that refused it."""
    moves = [move for move in reports if not isinstance(move, Problem)]
    answers = iter(await _apply(state, worker, moves))
    return [move if isinstance(move, Problem) else next(answers) for move in reports]


async def _apply(state: ServerState, worker: Holder, moves: Sequence[MoveBody]) -> list[Answer | Problem]:
    leases = await prove(state.engine, worker, [Proof(m.job_id, m.lease_token, m.attempt_id) for m in moves])
    leases_by_claim = {(le.job.job_id, le.claim_version): le for le in leases if isinstance(le, Lease)}
    decisions: list[Decision | Problem] = []
    proven = [(move, lease) for move, lease in zip(moves, leases, strict=True) if isinstance(lease, Lease)]
    async with places_of(
        state, worker, {lease.job.requester_id for move, lease in proven if move.follow_ups}
    ) as places:
        for move, lease in zip(moves, leases, strict=True):
            if isinstance(lease, Problem):
                decisions.append(lease)
                continue
            decision = await _decide(
                state, worker, places, leases_by_claim[lease.job.job_id, lease.claim_version], move
            )
            decisions.append(decision)
            if isinstance(decision, Decision) and decision.settlements:
                leases_by_claim[lease.job.job_id, lease.claim_version] = _after(lease, decision.settlements)
        answers = await _write(state, decisions)
    await _count_files(state, moves, leases)
    return answers


async def _count_files(state: ServerState, moves: Sequence[MoveBody], leases: Sequence[Lease | Problem]) -> None:
    """Count the files of completed attempts against quotas; the sweep of attempts repeats counts that fail here."""
    store = state.engine.store
    for move, lease in zip(moves, leases, strict=True):
        if move.do == "complete" and move.artifacts and isinstance(lease, Lease) and state.objects is not None:
            with contextlib.suppress(CallsheetError):
                attempt = attempt_files.of(lease.job, lease.claim_version)
                await attempt_files.close_one(state.quotas, store, state.objects, attempt)


async def apply_one(state: ServerState, worker: Holder, move: MoveBody) -> Answer:
    """Return the answer of one move; raises Problem."""
    (answer,) = await apply(state, worker, [move])
    if isinstance(answer, Problem):
        raise answer
    return answer


def _after(lease: Lease, settlements: Sequence[Settlement]) -> Lease:
    """Return the lease as later moves of the same request must see it."""
    job = lease.job
    for settlement in settlements:
        job = after_settlement(job, settlement, job.event_ms)
    return Lease(job, lease.claim_version, settlements[-1].outcome)


async def _decide(
    state: ServerState, worker: Holder, places: Places, lease: Lease, move: MoveBody
) -> Decision | Problem:
    if not lease.live:
        if lease.outcome in ENDS_OF.get(move.do, ()):
            return Decision((), {**_end_answer(lease.outcome), "repeated": True})
        return lease.lost_problem()
    try:
        if isinstance(move.log, Chunk):
            settlement, answer = await logs.append(state.engine, lease, move.log)
            return Decision((settlement,) if settlement else (), {"ok": True, **answer})
        settlements = await _settlements(state, worker, lease, move)
        await places.take(lease.job.requester_id, len(settlements[-1].follow_ups))
    except StoreError:
        raise
    except CallsheetError as error:
        return of_error(error)
    except Problem as problem:
        return problem
    outcome = settlements[-1].outcome
    return Decision(settlements, _end_answer(outcome) if outcome is not None else {"ok": True}, lease.job.queue)


def _end_answer(outcome: Outcome | None) -> Answer:
    is_requeued, is_dead_letter = outcome is Outcome.RETRIED, outcome is Outcome.DEAD_LETTERED
    return {"ok": True, "ack": True, "requeued": is_requeued, "dlq": is_dead_letter}


async def _settlements(state: ServerState, worker: Holder, lease: Lease, move: MoveBody) -> tuple[Settlement, ...]:
    job = lease.job
    match move.do:
        case "complete":
            return await _complete(state, worker, lease, move)
        case "fail":
            return (_fail(job, move),)
        case "cancel":
            return (commands.cancel(job, job.cancel_reason or clean(move.reason)),)
        case "release":
            return (_release(job, worker, move),)
        case "progress":
            return (commands.progress(job, _required(move.percent, "percent"), move.message),)
        case "stage":
            return (commands.advance(job, _required(move.stage, "stage")),)
        case "checkpoint":
            name = _required(move.name, "name")
            if name.startswith(RESERVED_PREFIX):
                raise InvalidInput(f"names of steps do not begin with {RESERVED_PREFIX}")
            return (commands.checkpoint(job, name, encode(move.data)),)
        case "event":
            return (commands.note(job, _event(job, move)),)
        case _:
            raise InvalidInput("a log needs log: {offset, text}")


def _event(job: Job, move: MoveBody) -> NewEvent:
    """Return the event of a worker's report; raises InvalidInput if workers may not use its type.

    A task's log line is an event of type `log`, accepted unless its data looks like a piece of an attempt's log.
    """
    kind: str = _required(move.type, "type")
    data = move.data if move.data is not None else {}
    if kind != "log" or not logs.is_line(data):
        check_own(kind)
    return NewEvent(kind, job.stage, encode(data))


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise InvalidInput(f"this move needs {name!r}")
    return value


async def _complete(state: ServerState, worker: Holder, lease: Lease, move: MoveBody) -> tuple[Settlement, ...]:
    """Return the success with artifacts and follow-up jobs; a warning event comes first if the stored log differs."""
    result = encode(move.result, limit_bytes=RESULT_BYTES)
    notes: list[Settlement] = []
    if isinstance(move.log, LogEnd) and not await logs.whole(state.engine, lease, move.log):
        warning = encode({"level": "warning", "message": "the log that was kept is not the one that was sent"})
        notes.append(commands.note(lease.job, NewEvent("warning", lease.job.stage, warning)))
    new_jobs = await follow_ups_of(state.engine, worker, lease.job, move.follow_ups)
    follow_ups = tuple(map(state.batcher.in_slot, new_jobs))
    success = commands.succeed(lease.job, result, follow_ups=follow_ups)
    if move.artifacts:
        success = success._replace(checkpoint=await adopt(state, lease, move.artifacts))
    return (*notes, success)


def _release(job: Job, worker: Holder, move: MoveBody) -> Settlement:
    """Return the settlement that hands a job back; after an outage the server's policy sets the delay."""
    if not move.waits_for:
        return hand_backs.release(job, worker.worker_id, move.delay_ms, is_refusal=move.reason == "incapable")
    rand = random.random()  # noqa: S311 - jitter
    if move.patience_ms is not None:
        return hand_on(job, patience_ms=move.patience_ms, rand=rand)
    outage = JobError(move.error.code, move.error.message)
    return commands.wait(job, outage, waits_for=move.waits_for, rand=rand, after_ms=move.delay_ms)


def _fail(job: Job, move: MoveBody) -> Settlement:
    error = move.error
    stack = {"stack": error.stack} if error.stack else {}
    problem = JobError(error.code, error.message, error.retryable, encode({**(error.details or {}), **stack}))
    if job.cancel_requested_at is not None:
        return commands.cancel(job, job.cancel_reason or "")
    if move.bury:
        return commands.dead_letter(job, problem)
    if move.retry_in_ms is not None:
        return commands.retry(job, problem, delay_ms=move.retry_in_ms)
    return commands.fail(job, problem, rand=random.random())  # noqa: S311 - jitter


async def _write(state: ServerState, decisions: Sequence[Decision | Problem]) -> list[Answer | Problem]:
    """Write all settlements together; if the store refuses (such as a follow-up id in use), write each move alone."""
    todo = [d for d in decisions if isinstance(d, Decision) and d.settlements]
    answers: dict[int, Answer | Problem] = {}
    try:
        results = await state.engine.settle([s for d in todo for s in d.settlements]) if todo else []
    except StoreError:
        raise
    except CallsheetError as error:
        if len(todo) == 1:
            return [of_error(error) if d is todo[0] else _answer_of(d) for d in decisions]
        for d in todo:
            (answers[id(d)],) = await _write(state, [d])
        return [answers.get(id(d), _answer_of(d)) for d in decisions]
    if queues := frozenset[str]().union(*(d.fills for d in todo)):
        waiting_of(state).wake(queues)
    position = 0
    for d in todo:
        mine = results[position : position + len(d.settlements)]
        position += len(mine)
        answers[id(d)] = _answer_of(d) if mine[-1] is not Settled.STALE else lost_problem()
    return [answers.get(id(d), _answer_of(d)) for d in decisions]


def _answer_of(decision: Decision | Problem) -> Answer | Problem:
    return decision if isinstance(decision, Problem) else decision.answer


def lost_problem() -> Problem:
    """Return the Problem `lease_lost` for a lease that ended between read and write."""
    return Problem("lease_lost", "this lease is over; stop the work and upload nothing", ok=False)
