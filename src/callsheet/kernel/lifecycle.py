"""A contract's vocabulary as data: words, stages and legal moves.

No other code branches on a job's contract. Each contract's table is in a file of `contracts`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import IllegalMove
from .job import Status
from .retry import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .job import Job
    from .retry import RetryPolicy
    from .settlement import Settlement


State = tuple[Status, str, bool]  # a status, a stage, and whether the job was ever started
MAX_NAME = 255  # characters of a name: of a kind, a queue, a stage, a key


class Phase(NamedTuple):
    """A phase of the job as readers see it, with its range in percent; None for an unknown range."""

    name: str
    low: int | None
    high: int | None


PROCESSING = Phase("processing", None, None)


class CallbackBody(NamedTuple):
    """The parts of a callback that a contract chooses.

    `url` names the payload member with the receiver's URL, `time` the body member with the time of the move.
    `constant_members(kind, job_id, after, before, payload)` returns the members that are equal for every claim,
    `end_members(settlement)` those that the end of an attempt adds.
    """

    url: str
    time: str
    constant_members: Callable[[str, str, str, str | None, dict[str, Any]], dict[str, Any]]
    end_members: Callable[[Settlement], dict[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Lifecycle:
    """One contract's words and moves.

    `words` maps a status to the contract's word; a contract lacks every status without a word.
    `stages`: None lets a task name any stage; a tuple lists the only stages, each a word of the contract.
    `moves` are pairs of words. `passes` lists words that one command may pass through.
    `running_once_started`: the word follows the first start, so a retry afterwards is not seen as a move.
    `requeue_needs_budget`: a failed job returns to the queue only while attempts are left, else it is a dead letter.
    `policy`: the name that its jobs carry for the retry policy `retry`. `callback`: the body of the callback for every
    move; None if the contract has no callbacks. `route`: the request that creates its jobs; '' if several do. `tasks`:
    its built-in tasks. `phases`: the phases that readers see, `phase_by_stage` by the stage in lower case.
    `resumable`: another job may take over the steps of a job that ended badly. `payload_checked`: only the route checks
    payloads, so no worker may enqueue its tasks. `is_shared`: other programs write and run its jobs in the store, too.
    `expires`: an open job has a time to live, renewed by each write, in a store with expiring keys.
    `any_task`: its jobs may be of any task; `unregistered`: even of one that no worker has registered.
    """

    name: str
    words: Mapping[Status, str]
    moves: frozenset[tuple[str, str]]
    policy: str = "default"
    retry: RetryPolicy = DEFAULT
    stages: tuple[str, ...] | None = None
    passes: frozenset[str] = frozenset()
    running_once_started: bool = False
    requeue_needs_budget: bool = False
    callback: CallbackBody | None = None
    route: str = ""
    tasks: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    phase_by_stage: Mapping[str, Phase] = field(default_factory=dict)
    resumable: bool = False
    payload_checked: bool = False
    is_shared: bool = False
    expires: bool = False
    any_task: bool = False
    unregistered: bool = False

    def word(self, status: Status, stage: str = "", *, has_started: bool = False) -> str | None:
        """Return the contract's word for a status and stage, or None if the contract has no word for them."""
        if status is Status.RUNNING and self.stages and stage:
            return stage if stage in self.stages else None
        if self.running_once_started and not status.terminal:
            return self.words[Status.RUNNING if has_started else Status.QUEUED]
        return self.words.get(status)

    def allows(self, before: str | None, after: str | None) -> bool:
        """Return whether the table has this move, direct or through a word in `passes`, or the word stays the same."""
        if before is None or after is None:
            return False
        if before == after or (before, after) in self.moves:
            return True
        return any((before, by) in self.moves and (by, after) in self.moves for by in self.passes)

    def phase_of(self, stage: str) -> Phase:
        """Return the phase of a stage, ignoring case; `processing` for an unknown stage."""
        return self.phase_by_stage.get(stage.lower(), PROCESSING)

    def word_of(self, job: Job) -> str | None:
        """Return the contract's word for the job's present state."""
        return self.word(job.status, job.stage, has_started=job.started_at is not None)

    def check(self, job: Job, command: str, status: Status, stage: str | None = None) -> None:
        """Raise IllegalMove unless the contract allows `command` to move the job to `status`."""
        has_started = job.started_at is not None
        target = (status, job.stage if stage is None else stage, has_started or command == "start")
        if not _legal(self, (job.status, job.stage, has_started), target):
            before, after = self.word_of(job), self.word(status, target[1], has_started=target[2])
            raise illegal(job, command, f"{before or job.status} to {after or stage or status}")


def pairs(text: str) -> frozenset[tuple[str, str]]:
    """Parse lines of `a|b > c|d` into pairs of words."""
    moves: set[tuple[str, str]] = set()
    for line in text.strip().splitlines():
        before, after = line.split(">")
        moves |= {(b.strip(), a.strip()) for b in before.split("|") for a in after.split("|")}
    return frozenset(moves)


def words(*names: str | None) -> dict[Status, str]:
    """Map the six statuses, in their order, to these words; None leaves out a status that the contract lacks."""
    return {status: word for status, word in zip(Status, names, strict=True) if word}


@lru_cache(maxsize=8192)
def _legal(lifecycle: Lifecycle, before: State, after: State) -> bool:
    """Return whether a contract allows a move; cached, since every settlement asks."""
    (status, stage, has_started), (to_status, to_stage, to_started) = before, after
    return lifecycle.allows(
        lifecycle.word(status, stage, has_started=has_started),
        lifecycle.word(to_status, to_stage, has_started=to_started),
    )


def illegal(job: Job, command: str, why: str) -> IllegalMove:
    """Return the error for a command that the job's state or contract does not allow."""
    return IllegalMove(f"cannot {command} job {job.job_id}: contract {job.contract} does not allow {why}")
