"""A small control plane for one worker under test: the real routes on a store in memory, behind the fault proxy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from callsheet.cli.errors import WrongInput
from callsheet.contracts.control_plane import claims, enrolment, routes
from callsheet.contracts.control_plane.claims import Terms
from callsheet.engine import Engine
from callsheet.engine.ids import new_id
from callsheet.http.keys import ApiKeys
from callsheet.http.server import Server, ServerOptions, create_app, listen
from callsheet.kernel.contracts import CONTROL_PLANE
from callsheet.kernel.job import Job, NewJob, Status
from callsheet.kernel.wire import encode

from .proxy import Asked, Fate, FaultProxy
from .report import Broken

STREAM = "testkit"
TERMS = Terms(lease_s=3.0, beat_s=1.0, provisional_s=3.0)
PATIENCE_S = 20.0
LOOK_S = 0.02
RETRY = '{"backoff":{"table_ms":[0]},"lost_lease_backoff":{"table_ms":[0]}}'
ENDS = frozenset({"complete", "fail", "release", "moves"})


class Stage:
    """One worker, the jobs that it is given, and what the network does to it."""

    def __init__(self, engine: Engine, proxy: FaultProxy, token: str, command: Sequence[str]) -> None:
        self.engine = engine
        self.proxy = proxy
        self.token = token
        self._command = command
        self._process: Process | None = None

    async def begin(self, _: object = None) -> str:
        """A network that works, and a worker that runs; says why a check cannot be made, which is never."""
        self.proxy.fate = lambda _: Fate()
        self.proxy.passed.clear()
        if self._process is not None and self._process.returncode is None:
            return ""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CALLSHEET_")},
            "CALLSHEET_URL": self.proxy.url,
            "CALLSHEET_TOKEN": self.token,
            "CALLSHEET_STREAMS": STREAM,
            "CALLSHEET_QUEUES": STREAM,
        }
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, env=environment, start_new_session=True, stdout=sys.stderr
            )
        except OSError as error:
            raise WrongInput(f"{self._command[0]} cannot be started: {os.strerror(error.errno or 0)}") from None
        return ""

    async def job(self, task: str, payload: dict[str, Any], **fields: Any) -> str:
        """A new job's id."""
        new = NewJob(new_id(), task, encode(payload), STREAM, contract=CONTROL_PLANE.name, retry=RETRY, **fields)
        await self.engine.enqueue([new])
        return new.job_id

    async def until(self, job_id: str, fact: Callable[[Job], bool], within_s: float = PATIENCE_S) -> Job:
        """The job, once this is a fact; raises Broken."""
        until = time.monotonic() + within_s
        while not fact(job := await self.engine.get(job_id)):
            if time.monotonic() > until:
                raise Broken(f"the job is still {job.status} after {within_s:g} s, attempt {job.attempt_count}")
            if self._process is not None and self._process.returncode is not None and job.status is Status.QUEUED:
                raise Broken(f"the worker has ended with {self._process.returncode}")
            await asyncio.sleep(LOOK_S)
        return job

    async def ended(self, job_id: str, within_s: float = PATIENCE_S) -> Job:
        """The job, once it has ended."""
        return await self.until(job_id, lambda job: job.status.terminal, within_s)

    async def running(self, job_id: str) -> Job:
        """The job, once it runs."""
        return await self.until(job_id, lambda job: job.status is Status.RUNNING)

    def fates(self, verbs: frozenset[str], *fates: Fate) -> None:
        """What becomes of the next requests of these verbs (of all, when there are none); then all is well again."""
        left = list(fates)

        def fate(asked: Asked) -> Fate:
            return left.pop(0) if left and (not verbs or asked.verb in verbs) else Fate()

        self.proxy.fate = fate

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to the worker."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def exited(self, within_s: float) -> int:
        """The worker's exit code; raises Broken when it goes on."""
        assert self._process is not None  # noqa: S101 - begun before each check
        try:
            async with asyncio.timeout(within_s):
                return await self._process.wait()
        except TimeoutError:
            raise Broken(f"the worker still runs after {within_s:g} s") from None

    async def close(self) -> None:
        """Kill the worker with all that it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()


@contextlib.asynccontextmanager
async def staged(command: Sequence[str], *, terms: Terms = TERMS) -> AsyncIterator[Stage]:
    """A control plane of its own on a free port, and the worker of a command."""
    engine = Engine.from_url("sqlite::memory:")
    await engine.store.migrate()
    async with engine, _serving(engine, terms) as url, FaultProxy.before(url) as proxy:
        token, _ = await ApiKeys(engine.store).create("testkit", scopes=["worker"])
        stage = Stage(engine, proxy, token, command)
        try:
            yield stage
        finally:
            await stage.close()


@contextlib.asynccontextmanager
async def _serving(engine: Engine, terms: Terms) -> AsyncIterator[str]:
    options = ServerOptions(secrets.token_hex(16), opens=False)
    app = create_app(engine, [routes.router, enrolment.router], options)
    server = Server(app, [listen("127.0.0.1", 0)])
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment] # signals are the caller's
    running = asyncio.create_task(server.run_until_stopped())
    while not server.started:
        if running.done():
            running.result()
        await asyncio.sleep(LOOK_S)
    claims.TERMS.put(app.state.server_state, terms)
    host, port = server.address
    try:
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        await running
