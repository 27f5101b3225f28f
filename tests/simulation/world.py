"""One world: a store, processes that die and come back, producers, a receiver, and a watch on all moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from callsheet.engine.schedules import KIND as SCHEDULE
from callsheet.engine.schedules import Schedule, put_schedule
from callsheet.kernel.errors import CallsheetError, DuplicateJob, StoreError
from callsheet.kernel.job import Claim
from callsheet.outbox.endpoints import Endpoints

from . import parts
from .faults import LATEST_S, Chaos, Faults
from .journal import Journal
from .moves import Moves
from .process import Process
from .receiver import Receiver
from .tasks import JOURNAL, REQUESTERS, Wish, wishes
from .wire import SharedStore

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.kernel.job import Job, NewJob
    from callsheet.store.protocol import Hint

    from .faults import Odds
    from .loop import SimLoop
    from .seeding import SimClock

PATIENCE_S = 3_000.0
ROLES = (("worker", (2, 3)), ("keeper", (1, 1)), ("deliverer", (1, 1, 2)))
UNSETTLED = """SELECT (SELECT count(*) FROM inbox_jobs WHERE status IN ('queued', 'running'))
    + (SELECT count(*) FROM job_outbox_events WHERE status IN ('pending', 'delivering'))"""


class World:
    """The complete world of one seed."""

    def __init__(self, seed: int, loop: SimLoop, clock: SimClock, odds: Odds | None = None) -> None:
        self.loop, self.clock = loop, clock
        self.chance = Random(f"world {seed}")
        self.store = SharedStore(self._spread)
        self.faults, self.chaos = Faults(self, seed, odds), Chaos(self, seed)
        self.journal, self.moves, self.receiver = Journal(self), Moves(self), Receiver(self)
        self.asked: dict[str, NewJob] = {}
        self.acknowledged: dict[str, str] = {}  # of a job that was asked for: the job that answers for it
        self.processes: list[Process] = []
        self.leases: dict[Claim, float] = {}
        self.jumps: list[float] = []
        self.faulty: list[str] = []
        self._ends = False

    def found(self, wrong: str) -> None:
        """Note that a promise was broken."""
        self.loop.note(f"WRONG {wrong};")
        self.faulty.append(f"at {self.loop.time():.3f} s: {wrong}")

    async def run(self) -> None:
        """Let everything happen, end the faults, and wait until all is quiet."""
        JOURNAL.set(self.journal)
        await self._prepare()
        keepers = [
            self.loop.create_task(self._keep(role, number))
            for role, counts in ROLES
            for number in range(self.chance.choice(counts))
        ]
        plans = wishes(self.chance, self.chaos.lasts_s)
        producer = self._process("producer-0")
        producer.start(self._produce(producer, plans))
        await self.chaos.run()
        await producer.over
        await self.store.delete_document(SCHEDULE, "regular")
        await self._until_quiet()
        self._ends = True
        for keeper in keepers:
            keeper.cancel()

    async def _prepare(self) -> None:
        endpoints = Endpoints(self.store, parts.Sealer(), parts.RULES)
        for requester_id in REQUESTERS:
            await endpoints.new_own_secret(requester_id)
        if self.chance.random() < 0.5:
            await put_schedule(self.store, Schedule("regular", "* * * * *", "short", '{"lasts_ms":1}'))

    async def _until_quiet(self) -> None:
        until = self.loop.time() + PATIENCE_S
        while self.loop.time() < until:
            await asyncio.sleep(1.0)
            if not self.store.db.execute(UNSETTLED).fetchone()[0]:
                await asyncio.sleep(LATEST_S + 1.0)  # what was doubled may still be on its way
                return

    async def _keep(self, role: str, place: int) -> None:
        """Start a process, and another one whenever it has ended."""
        number = 0
        while not self._ends:
            process = self._process(f"{role}-{place}-{number}")
            process.start(parts.MAINS[role](self, process))
            await process.over
            self.loop.note(f"{process.name} is gone;")
            await asyncio.sleep(self.chance.uniform(0.1, 8.0))
            number += 1

    def _process(self, name: str) -> Process:
        process = Process(name, self.loop)
        self.processes.append(process)
        return process

    def running(self) -> list[Process]:
        """Return the processes that live and may be broken."""
        return [process for process in self.processes if process.is_alive and process.role != "producer"]

    def kill(self, process: Process) -> None:
        """Kill a process."""
        if process.is_alive:
            self.loop.note(f"kill {process.name};")
            process.kill()

    def stop(self, process: Process) -> None:
        """Ask a process to stop, as SIGTERM does."""
        if process.part is not None:
            process.context.copy().run(self.loop.call_soon, process.part.stop)

    def cut_all(self, lasts_s: float, *, is_silent: bool) -> None:
        """Take the store away from everybody. It costs no lease, unless something else goes wrong as well."""
        for process in self.running():
            process.cut_until, process.is_silent = self.loop.time() + lasts_s, is_silent
            if self.faults.greater != ("away",):
                process.suffer(lasts_s)

    def jump(self, by_s: float) -> None:
        """Set the wall clock forward."""
        self.clock.jumped_s += by_s
        self.jumps.append(self.loop.time())

    def do(
        self, process: Process, verb: str, args: Any, options: Any, *, is_repeated: bool = False
    ) -> tuple[Any, Exception | None]:
        """Run a verb at the store for a process, and check its effects."""
        self.loop.note(f"{process.name} {verb} {parts.told(args)}{' again' if is_repeated else ''};")
        before = self.moves.before(verb, args)
        try:
            value = self.store.do(verb, *args, **options)
        except CallsheetError as error:
            return None, error
        self.moves.after(process, verb, args, before, value)
        return value, None

    def _spread(self, hint: Hint) -> None:
        for process in self.processes:
            for receiver in process.receivers if process.is_alive else ():
                if not self.faults.loses_hint():
                    delay_s = self.faults.chance.uniform(0.0, 0.05)
                    self.loop.call_later(delay_s, receiver.add, hint, context=process.context)

    async def _produce(self, process: Process, plans: list[Wish]) -> None:
        engine = parts.engine_of(self, process)
        async with asyncio.TaskGroup() as group:
            for wish in plans:
                await asyncio.sleep(max(0.0, wish.at_s - self.loop.time()))
                group.create_task(self._ask(engine, wish))

    async def _ask(self, engine: Engine, wish: Wish) -> None:
        """Enqueue a job, repeating until acknowledged; a repeat finds the existing job."""
        while not all(parent in self.acknowledged for parent in wish.job.depends_on):
            await asyncio.sleep(0.05)
        self.asked[wish.job.job_id] = wish.job
        self.acknowledged[wish.job.job_id] = await _insist(lambda: self._enqueue(engine, wish.job))
        if wish.cancelled_after_s is not None:
            await asyncio.sleep(wish.cancelled_after_s)
            with contextlib.suppress(CallsheetError):
                await _insist(lambda: engine.cancel(wish.job.job_id, "not wanted any more"))

    async def _enqueue(self, engine: Engine, job: NewJob) -> str:
        try:
            (answer,) = await engine.enqueue([job])
        except DuplicateJob:
            return job.job_id
        return answer.job_id

    def jobs(self) -> list[Job]:
        """Return every job in the store."""
        ids = [row[0] for row in self.store.db.execute("SELECT job_id FROM inbox_jobs ORDER BY seq")]
        return self.store.do("get", ids)  # type: ignore[no-any-return]


async def _insist(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Call until the store has answered."""
    while True:
        try:
            return await call()
        except StoreError:
            await asyncio.sleep(0.3)
