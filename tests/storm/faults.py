"""Executes and ends the plan's faults. Faults may overlap: each fault undoes only its own effect."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.storm.history import note
from tests.storm.plan import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.storm.ledger import Ledger
    from tests.storm.processes import House
    from tests.storm.proxy import Lines
    from tests.storm.stage import Stage


LOOK_S = 0.05
MANY = 2  # jobs that a worker holds when it is killed
HEIR_S = 30.0  # for another worker to take over what a silent one held; then it is no zombie


class Weather:
    """Makes faults on a stage. `counts` holds executed faults by kind."""

    def __init__(self, stage: Stage, ledger: Ledger) -> None:
        self._stage = stage
        self._ledger = ledger
        self._house: House = stage.house
        self._lines: Lines = stage.lines
        self._turns: Counter[str] = Counter()
        self._busy: set[str] = set()
        self.counts: Counter[str] = Counter()

    async def make(self, fault: Fault) -> None:
        """Execute one fault and wait for its end."""
        acts = {
            "kill": self._kill, "freeze": self._freeze, "restart": self._restart, "clock": self._clock,
            "zombie": self._zombie, "heir": self._zombie,
        }  # fmt: skip
        note("fault", fault=fault.kind, target=fault.target, lasts_s=fault.lasts_s, size=fault.size)
        if fault.kind in ("cut", "hole", "slow", "lost"):
            result = await self._disturb(fault)
        elif fault.kind in ("disk", "deaf"):
            result = await self._while_there(fault)
        else:
            result = await acts[fault.kind](fault)
        self.counts[fault.kind if result else "missed"] += 1
        note("over", fault=fault.kind, target=fault.target, made=result)

    async def _kill(self, fault: Fault) -> bool:
        """Kill -9 a process; a worker when it holds several jobs, if it soon does."""
        if fault.target.startswith(("worker", "remote")):
            await self._seen(lambda: len(self._ledger.held_by(fault.target)) >= MANY, self._stage.plan.held_s)
        return await self._kill_now(fault.target, fault.lasts_s)

    async def _kill_now(self, name: str, lasts_s: float) -> bool:
        if self._house.has_ended(name) or not await asyncio.to_thread(self._house.kill, name):
            return False
        note("killed", part=name)
        await asyncio.sleep(lasts_s)
        await asyncio.to_thread(self._house.start, name)
        return True

    async def _seen(self, happens: Callable[[], object], within_s: float) -> bool:
        """Wait until the history shows something; return False after a timeout."""
        until = time.monotonic() + within_s
        while not happens():
            if time.monotonic() > until:
                return False
            await asyncio.sleep(LOOK_S)
            self._ledger.read()
        return True

    async def _zombie(self, fault: Fault) -> bool:
        """Silence a worker that holds jobs until another one runs one of them, then let it speak.

        The worker notices nothing.

        A fault `heir` kills the other worker at that moment: none but the zombie could keep its lease.
        """
        task, patience_s = ("vigil", HEIR_S) if fault.kind == "heir" else (None, self._stage.plan.held_s)
        if not await self._seen(lambda: self._holder(fault.target, task), patience_s):
            return False
        part = self._holder(fault.target, task)
        target, is_line = (part, False) if fault.target == "any" else (fault.target, ">" in fault.target)
        self._busy.add(part)
        held = self._ledger.held_by(part, task)
        await self._silence(target, on=True, is_line=is_line)
        has_heir = await self._seen(lambda: self._ledger.heir_of(held), HEIR_S)
        await self._silence(target, on=False, is_line=is_line)
        heir = self._ledger.heir_of(held)
        self._busy.discard(part)
        if has_heir and fault.kind == "heir":
            return heir is not None and await self._kill_now(heir, fault.lasts_s)
        return has_heir

    def _holder(self, target: str, task: str | None) -> str:
        """Return the process that a target means if it holds jobs and is not silent already; else ''."""
        workers = self._stage.plan.crew.parts["worker"] if target == "any" else [target.partition(">")[0]]
        return next((name for name in workers if name not in self._busy and self._ledger.held_by(name, task)), "")

    async def _silence(self, target: str, *, on: bool, is_line: bool) -> None:
        if is_line:
            await asyncio.to_thread(self._lines.set, target, "hole" if on else "open")
        else:
            self._house.send(target, signal.SIGSTOP if on else signal.SIGCONT)

    async def _freeze(self, fault: Fault) -> bool:
        if fault.target in self._busy or not self._house.send(fault.target, signal.SIGSTOP):
            return False
        self._busy.add(fault.target)
        await asyncio.sleep(fault.lasts_s)
        self._house.send(fault.target, signal.SIGCONT)
        self._busy.discard(fault.target)
        return True

    async def _disturb(self, fault: Fault) -> bool:
        """Change a line for a while; the last of overlapping faults on a line reopens it.

        A lost answer ends at once and blocks no line: else a hole that it falls into would never end.
        """
        if fault.kind == "lost":
            await asyncio.to_thread(self._lines.set, fault.target, "lost")
            return True
        self._turns[fault.target] += 1
        turn = self._turns[fault.target]
        await asyncio.to_thread(self._lines.set, fault.target, fault.kind, fault.size / 1000)  # type: ignore[arg-type]
        await asyncio.sleep(fault.lasts_s)
        if self._turns[fault.target] == turn:
            await asyncio.to_thread(self._lines.set, fault.target, "open")
        return True

    async def _while_there(self, fault: Fault) -> bool:
        """Fill the disk or silence the receiver for a while."""
        begin, end = self._switches(fault)
        if fault.kind in self._busy:
            return False
        self._busy.add(fault.kind)
        await asyncio.to_thread(begin)
        await asyncio.sleep(fault.lasts_s)
        await asyncio.to_thread(end)
        self._busy.discard(fault.kind)
        return True

    def _switches(self, fault: Fault) -> tuple[Callable[[], None], Callable[[], None]]:
        if fault.kind == "disk":
            return self._stage.disk.fill, self._stage.disk.empty
        deaf: Path = self._stage.folder / "deaf"
        return deaf.touch, lambda: deaf.unlink(missing_ok=True)

    async def _restart(self, fault: Fault) -> bool:
        """Kill a third-party server with SIGKILL and restart it on its files."""
        server = self._stage.servers.get(fault.target)
        if server is None or fault.target in self._busy:
            return False
        self._busy.add(fault.target)
        await asyncio.to_thread(server.crash)
        await asyncio.sleep(fault.lasts_s)
        await asyncio.to_thread(server.start_again)
        self._busy.discard(fault.target)
        return True

    async def _clock(self, fault: Fault) -> bool:
        """Step the clock, and step it back later."""
        self._stage.clock.step(fault.size)
        await asyncio.sleep(fault.lasts_s)
        self._stage.clock.step(-fault.size)
        return True
