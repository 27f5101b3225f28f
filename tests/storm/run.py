"""The conductor: sets the stage, makes the faults of the plan, waits for the end and writes the history down."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from callsheet.store import store_from_url
from callsheet.store.protocol import Store
from tests.seaweed import S3Server
from tests.storm.ending import NET_S, open_callbacks, open_jobs, settle_down, write_end
from tests.storm.faults import Weather
from tests.storm.history import append, note
from tests.storm.ledger import Ledger
from tests.storm.plan import Plan
from tests.storm.stage import Stage, stage

BACKLOG = 40  # open jobs, above which the producers pause: all slots have work, and what was lost soon runs again
UNTOLD = 150  # callbacks on their way, above which they pause, too
MANY = 1_000_000
LINE_S = 5.0
LOOK_S = 0.02
WORK_BETWEEN = 8  # functions that end between two faults, at least
PRODUCERS = ("http-producer", "python-producer")
Tell = Callable[[str], None]


class Conductor:
    """Runs one storm on its stage."""

    def __init__(self, made: Stage, store: Store, tell: Tell, patience_s: float) -> None:
        self._ledger = Ledger(made.folder / "history.jsonl")
        self.weather = Weather(made, self._ledger)
        self._patience_s = patience_s
        self._stage, self._store, self._tell = made, store, tell
        self._house, self._folder, self._plan = made.house, made.folder, made.plan
        self._open = -1
        self._enough = WORK_BETWEEN
        self._began_at = time.monotonic()

    async def run(self) -> None:
        """Make the weather, then wait for the end of everything and stop the processes."""
        self._house.folder.joinpath("closing").unlink(missing_ok=True)
        self._stage.begin()
        keeping = asyncio.create_task(self._keep())
        try:
            await self._make_faults()
            await self._end()
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
        if not keeping.cancelled():
            keeping.result()  # it ended by an error: nobody looked after the processes

    async def _make_faults(self) -> None:
        async with asyncio.TaskGroup() as result:
            for fault in self._plan.faults:
                if not await self._reach(fault.at):
                    break
                result.create_task(self.weather.make(fault))
            if self._plan.unit == "seconds":
                await self._sleep_until(self._plan.seconds)
        for name in self._stage.lines.lines:
            self._stage.lines.set(name, "open")
        if self._plan.unit == "seconds":
            for fault in self._plan.last_act:
                await self.weather.make(fault)

    async def _reach(self, at: float) -> bool:
        """Wait for a moment of the plan: a time, or an amount of work; False if unreachable.

        A long storm's fault also requires some work since the previous fault: a slow machine has fewer faults, not
        processes that are killed before they have begun. This condition ends when every order has been placed.
        """
        if self._plan.unit == "seconds":
            await self._sleep_until(at)
            while self._ledger.ended < self._enough and time.monotonic() < self._began_at + self._plan.seconds:
                await asyncio.sleep(LOOK_S)
                self._ledger.read()
            is_time, self._enough = self._ledger.ended >= self._enough, self._ledger.ended + WORK_BETWEEN
            return is_time
        while self._ledger.ended < at and not (self._open == 0 and all(map(self._house.has_ended, PRODUCERS))):
            await asyncio.sleep(LOOK_S)
            self._ledger.read()
        return True

    async def _sleep_until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, self._began_at + at - time.monotonic()))

    async def _keep(self) -> None:
        """Restart exited parts, limit the producers' lead, and print progress."""
        next_line, untold = time.monotonic(), 0
        while True:
            self._house.restart_dead()
            self._ledger.read()
            self._open = left = await open_jobs(self._store)
            if time.monotonic() >= next_line:
                next_line += LINE_S
                untold = await open_callbacks(self._store)
                self._tell(self._line(left))
            if left > BACKLOG or untold > UNTOLD:
                (self._folder / "pause").touch()
            else:
                (self._folder / "pause").unlink(missing_ok=True)
            await asyncio.sleep(0.5)

    def _line(self, left: int) -> str:
        faults = " ".join(f"{kind} {count}" for kind, count in sorted(self.weather.counts.items()))
        start = time.monotonic() - self._began_at
        return f"{start:6.0f} s  {self._ledger.acknowledged} jobs acknowledged, {min(left, 9_999)} open; {faults}"

    async def _end(self) -> None:
        (self._folder / "stop").touch()
        await self._settle_down(self._producing, "producers")
        await self._settle_down(lambda: open_jobs(self._store), "jobs")
        note("phase", after="jobs")
        await self._settle_down(lambda: open_callbacks(self._store), "callbacks")
        note("phase", after="callbacks")
        (self._folder / "watched").touch()
        await self._settle_down(self._watching, "watchers")
        await self._clear_away()
        await asyncio.to_thread(self._stop)
        await self._settle_down(self._processes, "processes")

    async def _settle_down(self, outstanding: Callable[[], Awaitable[int]], what: str) -> None:
        await settle_down(outstanding, what, self._patience_s)

    async def _processes(self) -> int:
        return len(await asyncio.to_thread(self._house.left))

    async def _producing(self) -> int:
        return sum(not self._house.has_ended(name) for name in PRODUCERS)

    async def _watching(self) -> int:
        """Return the number of jobs still being watched."""
        self._ledger.read()
        return 0 if self._house.has_ended("watcher") else MANY - self._ledger.watched

    async def _clear_away(self) -> None:
        """Stop the workers in good order; if killed ones left something behind, one that begins now removes it."""
        parts = self._plan.crew.parts
        codes = await asyncio.to_thread(self._house.stop, *parts["worker"], *parts["remote"])
        note("stopped", codes=codes)
        if not await self._workspaces():
            return
        self._house.add(self._stage.worker("last-worker"))
        self._house.add(self._stage.remote("last-remote", next(iter(self._stage.ports.values()))))
        await self._settle_down(self._workspaces, "workspaces")

    async def _workspaces(self) -> int:
        return len(self._stage.disk.workspaces_left())

    def _stop(self) -> None:
        (self._folder / "closing").touch()
        note("stopped", codes=self._house.stop(*list(self._house.running)))


@contextlib.asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    store = store_from_url(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def storm(
    plan: Plan,
    folder: Path,
    tell: Tell,
    *,
    s3: S3Server | None = None,
    library: Path | None = None,
    patience_s: float = NET_S,
) -> dict[str, int]:
    """Run one storm and write its history into a folder; return the number of faults by kind.

    The final wait gives up after `patience_s` without progress.
    """
    with stage(plan, folder, s3=s3, library=library) as storm_stage:
        append(
            folder / "history.jsonl", [{"fact": "plan", "at": 0, **plan.told(), "disk": storm_stage.disk.is_mounted}]
        )
        await storm_stage.prepare()
        async with _opened(storm_stage.url) as store:
            conductor = Conductor(storm_stage, store, tell, patience_s)
            await conductor.run()
            await write_end(store, folder)
        left = {
            "processes": [process.pid for process in storm_stage.house.left()],
            "workspaces": storm_stage.disk.workspaces_left(),
        }
        append(folder / "end.jsonl", [{"fact": "left", **left, "secrets": _leaks(folder, storm_stage.secrets)}])
        return dict(conductor.weather.counts)


def _leaks(folder: Path, secrets: list[str]) -> list[str]:
    """Return the logs in which a secret stands."""
    logs = [*(folder / "logs").iterdir()]
    return [log.name for log in logs if any(secret in log.read_text(errors="replace") for secret in secrets)]
