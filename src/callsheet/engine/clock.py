"""The store's clock beside this machine's steady one: a step is seen, and what waits is moved by it (ADR 0034).

Every process that sweeps compares two looks at both clocks. What it saw last is in a document, the mark, so that of
many processes one moves what waits, and a process that has just begun sees what happened while it was away.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.kernel.errors import DocumentConflict
from callsheet.store.clock import TOLERANCE_MS, ClockStep
from callsheet.store.protocol import Document

from .telemetry import fact

if TYPE_CHECKING:
    from callsheet.store.clock import Rebased
    from callsheet.store.protocol import Store

log = logging.getLogger("callsheet.clock")
KIND, ID = "clock", "store"
MARK_MS = 30_000  # so old may a mark become before it is written anew
SILENT_MS = MARK_MS + TOLERANCE_MS  # a mark that is older was left by processes that are gone, or the clock stepped
DOUBT_MS = 5_000  # so long are those waited for that can tell which: they look each second
REMEMBERED = 10
RACES = 5
DAY_MS = 86_400_000


class Look(NamedTuple):
    """The store's time, and this machine's steady time just before and just after it was asked for, in milliseconds."""

    at: int
    steady: tuple[int, int]


class Step(NamedTuple):
    """A step that was seen: where the clock stood after it, and by how much it moved. Above 0 is forward."""

    at: int
    by_ms: int


class Mark(NamedTuple):
    """What processes tell each other of the store's clock.

    `boot` names the machine's steady clock, which all of its processes share. `ahead` are the steps forward that no
    step back has undone yet, `steps` the last ones, for people.
    """

    look: Look
    boot: str
    ahead: tuple[Step, ...] = ()
    steps: tuple[Step, ...] = ()
    version: int = 0


class Sight(NamedTuple):
    """What a look has shown: the store's time, by how much it may be ahead of the truth, and whether that is certain.

    It is not while nobody knows what the clock did: then a lease that seems to be over may be alive.
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
        self.ahead_ms = 0  # by how much the clock may be ahead, as the last look saw it
        self._doubt: tuple[int, int] | None = None  # since when, and at which version of the mark

    async def glance(self) -> int:
        """The store's time, after a look if it has stepped since the last one; else nothing more is asked for."""
        now = await self._ask()
        if self._last is None or _step(due(self._last, now), now.at):
            return (await self.look()).at
        self._last = now
        return now.at

    async def look(self) -> Sight:
        """Compare the clocks; where the store's has stepped, move what waits by it, unless another process has."""
        for _ in range(RACES):
            now, mark = await self._ask(), await read_mark(self._store)
            certain, step = self._is_certain(mark, now), self._step_since(mark, now)
            try:
                if step:
                    mark = await self._rebase(mark, now, step)
                elif mark is None or (certain and now.at - mark.look.at >= MARK_MS):
                    mark = await self._note(mark, now)
            except DocumentConflict:  # another process was faster: what it has seen may be what was to be done here
                continue
            self._last, self._version, self.ahead_ms = now, mark.version, _ahead_ms(mark.ahead, now.at)
            return Sight(now.at, self.ahead_ms, certain)
        return Sight(now.at, certain=False)

    async def _ask(self) -> Look:
        before = self._steady()
        at = await self._store.now()
        return Look(at, (before, self._steady()))

    def _is_certain(self, mark: Mark | None, now: Look) -> bool:
        """Whether what the clock did since the mark is known here.

        A process that has just begun and finds an old mark of another machine cannot tell. It waits for those that can,
        and writes no mark of its own meanwhile, which would look as if it had seen to a step.
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
        """By how much the store's clock has stepped, 0 if it has not or another process has seen to it."""
        if self._last is not None and now.steady[0] >= self._last.steady[1]:
            expected = due(self._last, now)
        elif mark is None:
            return 0
        elif _is_of_boot(mark, self._boot, now):
            expected = due(mark.look, now)
        else:
            return _step((mark.look.at, max(mark.look.at, now.at)), now.at)  # a step forward is not seen by this
        step = _step(expected, now.at)
        return step if mark is None or self._is_open(mark, step, expected, now) else 0

    def _is_open(self, mark: Mark, step: int, expected: tuple[int, int], now: Look) -> bool:
        """Whether the mark was written before the step, so that nobody has seen to it."""
        if step > 0:
            return mark.look.at <= expected[1] + TOLERANCE_MS
        return mark.look.at > now.at + TOLERANCE_MS or self._last is None or mark.version == self._version

    async def _note(self, mark: Mark | None, now: Look) -> Mark:
        fresh = Mark(now, self._boot) if mark is None else mark._replace(look=now, boot=self._boot)
        return fresh._replace(version=(await self._store.put_document(_document(fresh))).version)

    async def _rebase(self, mark: Mark | None, now: Look, step: int) -> Mark:
        """Move what waits, in one write with the mark."""
        before = mark or Mark(now, self._boot)
        since, ahead = (None, (*before.ahead, Step(now.at, step))) if step > 0 else undone(before.ahead, -step)
        steps = (*before.steps, Step(now.at, step))
        after = Mark(now, self._boot, ahead[-REMEMBERED:], steps[-REMEMBERED:], before.version)
        moved = await self._store.rebase(ClockStep(now.at - step, now.at, since), _document(after))
        _tell(Step(now.at, step), moved)
        return after._replace(version=before.version + 1)


def due(last: Look, now: Look) -> tuple[int, int]:
    """What the store's clock should show, at least and at most, had it gone on evenly since a look."""
    return last.at + now.steady[0] - last.steady[1], last.at + now.steady[1] - last.steady[0]


def _step(expected: tuple[int, int], at: int) -> int:
    """How far a time is outside of what was expected; 0 within the tolerance."""
    step = at - min(max(at, expected[0]), expected[1])
    return step if abs(step) > TOLERANCE_MS else 0


def undone(ahead: tuple[Step, ...], back_ms: int) -> tuple[int | None, tuple[Step, ...]]:
    """Since when the clock was ahead that has now stepped back, and by which steps it still is.

    None: it was wrong before anybody looked, or is wrong now; either way all that waits was written by another clock.
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
    """The mark as the last process left it; None before the first."""
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
    """Whether the mark's steady time is of the same clock as ours; one that was set back with its machine is not."""
    return mark.boot == boot and now.steady[0] >= mark.look.steady[1]


def _ahead_ms(ahead: tuple[Step, ...], at: int) -> int:
    """By how much the clock may be ahead: what it stepped forward within its last day."""
    return sum(step.by_ms for step in ahead if step.at > at - DAY_MS)


def _tell(step: Step, moved: Rebased) -> None:
    fact("clock_step")
    log.warning(
        "the store's clock stepped %s; %d waiting jobs, %d leases and %d callbacks were moved by as much",
        told(step),
        *moved,
    )


def told(step: Step) -> str:
    """A step in words: which way, how far, and to what time."""
    moment = datetime.fromtimestamp(step.at / 1000, UTC).isoformat(timespec="seconds")
    return f"{'forward' if step.by_ms > 0 else 'back'} by {timedelta(seconds=abs(step.by_ms) // 1000)} to {moment}"


def steady_ms() -> int:
    """This machine's steady clock: it is never set, and stands still while the machine is suspended."""
    return time.monotonic_ns() // 1_000_000


@functools.cache
def boot_id() -> str:
    """A name for this machine's steady clock: the same in all processes since its start, else in this one alone."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        text = f"{boot} {Path('/proc/self/ns/time').readlink()} {socket.gethostname()}"  # snapshots share the first
    except OSError:
        text = uuid.uuid4().hex
    return hashlib.sha256(text.encode()).hexdigest()[:16]
