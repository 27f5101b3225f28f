"""Compare the store's clock with this machine's steady clock; after a step, move waiting times (ADR 0034).

Every process that sweeps compares both clocks at two moments. A document, the mark, holds its last reading, so that one
of many processes moves the waiting times, and a process that has just started sees steps made while it was down.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import socket
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from callsheet.kernel.errors import DocumentConflict
from callsheet.store.clock import TOLERANCE_MS, ClockStep, Rebased
from callsheet.store.protocol import Document, Store

from .telemetry import fact

log = logging.getLogger("callsheet.clock")
KIND, ID = "clock", "store"
MARK_MS = 30_000  # the mark is written again at this age
SILENT_MS = MARK_MS + TOLERANCE_MS  # an older mark comes from ended processes, or the clock stepped
DOUBT_MS = 5_000  # the wait for processes that can tell which; they look each second
STEPS_LISTED = 10
RACES = 5
DAY_MS = 86_400_000


class Look(NamedTuple):
    """A reading: the store's time, and this machine's steady time just before and just after, in milliseconds."""

    at: int
    steady: tuple[int, int]


class Step(NamedTuple):
    """An observed step: the clock's time after the step, and its distance. Positive is forward."""

    at: int
    by_ms: int


class Mark(NamedTuple):
    """The shared record of the store's clock.

    `boot` names the machine's steady clock, which all of its processes share. `ahead` lists the forward steps that no
    backward step has undone yet, `steps` the latest steps, for people.
    """

    look: Look
    boot: str
    ahead: tuple[Step, ...] = ()
    steps: tuple[Step, ...] = ()
    version: int = 0


class Sight(NamedTuple):
    """A look's result: the store's time, how far it may be ahead of true time, and whether that is certain.

    While the clock's movement is unknown, the result is uncertain: leases that seem expired may be alive.
    """

    at: int
    ahead_ms: int = 0
    certain: bool = True


class ClockWatch:
    """One process's view of a store's clock. `steady` and `boot` are for tests and virtual time."""

    def __init__(self, store: Store, steady: Callable[[], int] | None = None, boot: str | None = None) -> None:
        self._store = store
        self._steady = steady or steady_ms
        self._boot = boot or boot_id()
        self._last: Look | None = None
        self._version = 0
        self.ahead_ms = 0  # how far the clock may be ahead, by the last look
        self._doubt: tuple[int, int] | None = None  # the start of the doubt, and the mark's version then

    async def glance(self) -> int:
        """Return the store's time; look at the mark only if the clock has stepped since the last reading."""
        now = await self._ask()
        if self._last is None or _step(due(self._last, now), now.at):
            return (await self.look()).at
        self._last = now
        return now.at

    async def look(self) -> Sight:
        """Compare the clocks; after a step of the store's clock, move waiting times unless another process did."""
        for _ in range(RACES):
            now, mark = await self._ask(), await read_mark(self._store)
            certain, step = self._is_certain(mark, now), self._step_since(mark, now)
            try:
                if step:
                    mark = await self._rebase(mark, now, step)
                elif mark is None or (certain and now.at - mark.look.at >= MARK_MS):
                    mark = await self._note(mark, now)
            except DocumentConflict:  # another process was faster and may have handled the same step
                continue
            self._last, self._version, self.ahead_ms = now, mark.version, _ahead_ms(mark.ahead, now.at)
            return Sight(now.at, self.ahead_ms, certain)
        return Sight(now.at, certain=False)

    async def _ask(self) -> Look:
        before = self._steady()
        at = await self._store.now()
        return Look(at, (before, self._steady()))

    def _is_certain(self, mark: Mark | None, now: Look) -> bool:
        """Return whether this process knows the clock's movement since the mark.

        A process that has just started and reads an old mark of another machine cannot tell. It waits for other
        processes that can, and writes no mark meanwhile: a new mark would suggest a handled step.
        """
        if mark is None or (self._doubt is None and (self._last is not None or self._knows(mark, now))):
            return True
        self._doubt = self._doubt or (now.steady[0], mark.version)
        since, version = self._doubt
        if mark.version == version and now.steady[0] - since < DOUBT_MS:
            return False
        self._doubt = None
        return True

    def _knows(self, mark: Mark, now: Look) -> bool:
        return _is_of_boot(mark, self._boot, now) or now.at - mark.look.at <= SILENT_MS

    def _step_since(self, mark: Mark | None, now: Look) -> int:
        """Return the distance of a step of the store's clock; 0 without a step, or if another process handled it."""
        if self._last is not None and now.steady[0] >= self._last.steady[1]:
            interval = due(self._last, now)
        elif mark is None:
            return 0
        elif _is_of_boot(mark, self._boot, now):
            interval = due(mark.look, now)
        else:
            return _step((mark.look.at, max(mark.look.at, now.at)), now.at)  # this cannot detect a step forward
        step = _step(interval, now.at)
        return step if mark is None or self._is_open(mark, step, interval, now) else 0

    def _is_open(self, mark: Mark, step: int, interval: tuple[int, int], now: Look) -> bool:
        """Return whether the mark is older than the step, so that no process has handled the step."""
        if step > 0:
            return mark.look.at <= interval[1] + TOLERANCE_MS
        return mark.look.at > now.at + TOLERANCE_MS or self._last is None or mark.version == self._version

    async def _note(self, mark: Mark | None, now: Look) -> Mark:
        fresh = Mark(now, self._boot) if mark is None else mark._replace(look=now, boot=self._boot)
        return fresh._replace(version=(await self._store.put_document(_document(fresh))).version)

    async def _rebase(self, mark: Mark | None, now: Look, step: int) -> Mark:
        """Move waiting times, in one write with the mark."""
        before = mark or Mark(now, self._boot)
        since, ahead = (None, (*before.ahead, Step(now.at, step))) if step > 0 else undone(before.ahead, -step)
        steps = (*before.steps, Step(now.at, step))
        after = Mark(now, self._boot, ahead[-STEPS_LISTED:], steps[-STEPS_LISTED:], before.version)
        counts = await self._store.rebase(ClockStep(now.at - step, now.at, since), _document(after))
        _tell(Step(now.at, step), counts)
        return after._replace(version=before.version + 1)


def due(last: Look, now: Look) -> tuple[int, int]:
    """Return the lowest and highest time that the store's clock should show if it ran evenly since a look."""
    return last.at + now.steady[0] - last.steady[1], last.at + now.steady[1] - last.steady[0]


def _step(interval: tuple[int, int], at: int) -> int:
    """Return how far a time lies outside the expected range; 0 within the tolerance."""
    step = at - min(max(at, interval[0]), interval[1])
    return step if abs(step) > TOLERANCE_MS else 0


def undone(ahead: tuple[Step, ...], back_ms: int) -> tuple[int | None, tuple[Step, ...]]:
    """Return since when the clock was ahead before it stepped back, and the forward steps still in effect.

    None as the first value: the clock was wrong before the first look, or is wrong now; in both cases a different clock
    wrote all waiting times.
    """
    left = list(ahead)
    while left:
        step = left.pop()
        if back_ms <= step.by_ms + TOLERANCE_MS:
            rest = step.by_ms - back_ms
            return step.at, (*left, *([step._replace(by_ms=rest)] if rest > TOLERANCE_MS else []))
        back_ms -= step.by_ms
    return None, ()


async def read_mark(store: Store) -> Mark | None:
    """Return the stored mark; None before the first."""
    for document in await store.documents(KIND, ID):
        body: dict[str, Any] = json.loads(document.body)
        low, high = body["steady"]
        ahead, steps = (tuple(Step(*pair) for pair in body[name]) for name in ("ahead", "steps"))
        return Mark(Look(body["at"], (low, high)), body["boot"], ahead, steps, document.version)
    return None


def _document(mark: Mark) -> Document:
    body = {**mark.look._asdict(), "boot": mark.boot, "ahead": mark.ahead, "steps": mark.steps}
    return Document(KIND, ID, json.dumps(body), mark.version)


def _is_of_boot(mark: Mark, boot: str, now: Look) -> bool:
    """Return whether the mark's steady time is from our own clock; false if a restored snapshot set that clock back."""
    return mark.boot == boot and now.steady[0] >= mark.look.steady[1]


def _ahead_ms(ahead: tuple[Step, ...], at: int) -> int:
    """Return how far the clock may be ahead: the sum of its forward steps within its last day."""
    return sum(step.by_ms for step in ahead if step.at > at - DAY_MS)


def _tell(step: Step, counts: Rebased) -> None:
    fact("clock_step")
    log.warning(
        "the store's clock stepped %s; %d waiting jobs, %d leases and %d callbacks were moved by as much",
        describe(step),
        *counts,
    )


def describe(step: Step) -> str:
    """Return a step as text: direction, distance, and new time."""
    moment = datetime.fromtimestamp(step.at / 1000, UTC).isoformat(timespec="seconds")
    return f"{'forward' if step.by_ms > 0 else 'back'} by {timedelta(seconds=abs(step.by_ms) // 1000)} to {moment}"


def steady_ms() -> int:
    """Return this machine's steady clock: it is never set, and stands still while the machine is suspended."""
    return time.monotonic_ns() // 1_000_000


@functools.cache
def boot_id() -> str:
    """Return a name for this machine's steady clock: shared by all processes since boot, or else this process's own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        text = f"{boot} {Path('/proc/self/ns/time').readlink()} {socket.gethostname()}"  # clones share the boot id
    except OSError:
        text = uuid.uuid4().hex
    return hashlib.sha256(text.encode()).hexdigest()[:16]
