"""A worker in this process: its event loop, its signals, and what belongs to it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from callsheet import __version__
from callsheet.store.tasks import end

from .apps import load_app
from .failures import Told
from .parent import Place, await_death
from .passwords import without_password

if TYPE_CHECKING:
    from callsheet.app import Callsheet
    from callsheet.worker import Worker
    from callsheet.worker.options import WorkerOptions

    from .worker import Flags

log = logging.getLogger("callsheet.cli")


def serve(target: str, flags: Flags, place: Place | None) -> None:
    """Work until stopped. Raises what the app's import and the store's opening raise."""
    app = load_app(target, database_url=flags.database_url, debug=flags.log_level == "debug")
    worker = app.worker(**_options(flags))
    run_on_fast_loop(_work(app, worker, flags, place))


def run_on_fast_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a process's one coroutine, with uvloop where it is, and without needless garbage collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # fewer collections, in a process that only does jobs: 8 % more of them
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(work)


def _options(flags: Flags) -> WorkerOptions:
    options: WorkerOptions = {
        "concurrency": flags.concurrency,
        "lease": flags.lease,
        "prefetch": flags.prefetch,
        "drain": flags.drain,
        "grace": flags.grace,
        "poll": flags.poll,
    }
    if flags.queues is not None:
        options["queues"] = flags.queues
    if flags.workspaces is not None:
        options["workspaces"] = flags.workspaces
    return options


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - not there on every system
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


class _Stops:
    """Signals: the first drains, the second hands back what runs. While the store is being opened one is enough."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._count = 0
        self._opening = asyncio.current_task()

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.once_more)

    def opened(self) -> None:
        self._opening = None

    def once_more(self) -> None:
        self._count += 1
        log.info("stopping" if self._count == 1 else "stopping at once: running jobs are handed back")
        self._worker.stop(hard=self._count > 1)
        if self._opening is not None:
            self._opening.cancel()


async def _work(app: Callsheet, worker: Worker, flags: Flags, place: Place | None) -> None:
    stops = _Stops(worker)
    stops.listen()
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(app)
            if flags.health is not None:
                await _serve_health(stack, worker, flags, place)
        except asyncio.CancelledError:
            return  # stopped before it could begin
        stops.opened()
        if place is not None:
            stack.push_async_callback(end, asyncio.create_task(await_death(place, stops.once_more)))
        await _greet(app, worker)
        await worker.run(burst=flags.burst)


async def _serve_health(stack: contextlib.AsyncExitStack, worker: Worker, flags: Flags, place: Place | None) -> None:
    from callsheet.worker.health import Health  # noqa: PLC0415 - only who asks for it needs it

    assert flags.health is not None  # noqa: S101 - asked by the caller
    port = flags.health.port + (place.number if place is not None else 0)
    try:
        await stack.enter_async_context(Health(worker, flags.health.host, port))
    except OSError as error:
        raise Told(f"cannot listen at {flags.health.host}:{port}: {os.strerror(error.errno or 0)}") from error
    log.info("health at http://%s:%d", flags.health.host, port)


async def _greet(app: Callsheet, worker: Worker) -> None:
    url, durability = without_password(app.database_url), (await app.engine()).store.durability
    tasks = len(app.definitions)
    log.info(
        "callsheet %s: %d tasks, %d slots, store %s (%s)",
        __version__,
        tasks,
        worker.options.concurrency,
        url,
        durability,
        extra={"fields": {"event": "ready", "store": url, "durability": durability, "queues": list(worker.queues)}},
    )
