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
from callsheet.app import Callsheet
from callsheet.app.builtin import add_builtin
from callsheet.store.tasks import end
from callsheet.worker.options import default_worker_id

from .apps import Places, load_app
from .failures import Told
from .forced import check_forced_ffmpeg
from .outgoing import storage_rules, webhook_rules
from .parent import Place, await_death
from .passwords import without_password
from .patience import Patience
from .stores import beside

if TYPE_CHECKING:
    from callsheet.engine.transport import Transport
    from callsheet.worker import Worker
    from callsheet.worker.options import WorkerOptions
    from callsheet.worker.remote import RemoteWorker

    from .worker import Flags

log = logging.getLogger("callsheet.cli")
TOKENS = ("CALLSHEET_TOKEN", "CALLSHEET_WORKER_TOKEN")


def serve(target: str | None, flags: Flags, place: Place | None) -> bool:
    """Work until stopped; True when a server asked for it. Raises what the app's import and the opening raise."""
    debug = flags.log_level == "debug"
    check_forced_ffmpeg()
    places = Places(flags.database_url, flags.redis_url, flags.objects_url, flags.catalog_url)
    app = load_app(target, places, debug=debug) if target else _builtin(places, flags)
    app.objects_url = app.objects_url or beside(app.database_url)
    if flags.url is not None:
        return _serve_remotely(app, flags, flags.url, place)
    worker = app.worker(**_options(flags, place))
    run_on_fast_loop(_work(app, worker, flags, place))
    return False


def _builtin(places: Places, flags: Flags) -> Callsheet:
    """The tasks that come along, with the server's own limits and ways out: what it takes must run here."""
    rules, most = (webhook_rules(flags), storage_rules(flags)), flags.max_source * 1_000_000
    return add_builtin(places.apply_to(Callsheet()), rules[0], storage=rules[1], max_source_bytes=most)


def _serve_remotely(app: Callsheet, flags: Flags, url: str, place: Place | None) -> bool:
    from callsheet.worker.remote import ENROLMENT, RemoteOptions  # noqa: PLC0415 - a local worker needs none of it

    for name in TOKENS:
        os.environ.pop(name, None)  # programs that tasks start have no business with it
    token = flags.token or ""
    if flags.token_file is not None and not token.startswith(ENROLMENT):
        token = ""
    remote = RemoteOptions(url, token, flags.token_file, flags.labels or (), flags.claim_wait)
    worker = app.remote_worker(remote, **_options(flags, place))
    run_on_fast_loop(_work_remotely(app, worker, flags, place))
    return worker.drained


def run_on_fast_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a process's one coroutine, with uvloop where it is, and without needless garbage collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # fewer collections, in a process that only does jobs: 8 % more of them
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(work)


def _options(flags: Flags, place: Place | None) -> WorkerOptions:
    options: WorkerOptions = {
        "concurrency": flags.concurrency,
        "lease": flags.lease,
        "prefetch": flags.prefetch,
        "drain": flags.drain,
        "grace": flags.grace,
        "poll": flags.poll,
        "task_patience": flags.task_patience,
    }
    if flags.queues is not None:
        options["queues"] = flags.queues
    if flags.workspaces is not None:
        options["workspaces"] = flags.workspaces
    if place is not None and place.number:  # the first of a pod has the pod's own name
        options["worker_id"] = f"{default_worker_id()}-{place.number + 1}"
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
            if flags.health is not None:
                await _serve_health(stack, worker, flags, place)
            await Patience(flags.wait).open(lambda: stack.enter_async_context(app))
        except asyncio.CancelledError:
            return  # stopped before it could begin
        stops.opened()
        if place is not None:
            stack.push_async_callback(end, asyncio.create_task(await_death(place, stops.once_more)))
        if flags.fair_queues:
            (await app.engine()).fair_queues = frozenset(flags.fair_queues)
        await _greet(app, worker)
        await worker.run(burst=flags.burst)


async def _work_remotely(app: Callsheet, worker: RemoteWorker, flags: Flags, place: Place | None) -> None:
    stops = _Stops(worker)
    stops.listen()
    async with contextlib.AsyncExitStack() as stack:
        try:
            if flags.health is not None:
                await _serve_health(stack, worker, flags, place)
            await Patience(flags.wait).open(worker.introduce)
        except asyncio.CancelledError:
            return
        stops.opened()
        if place is not None:
            stack.push_async_callback(end, asyncio.create_task(await_death(place, stops.once_more)))
        _greet_remotely(app, worker)
        await worker.run(burst=flags.burst)


def _greet_remotely(app: Callsheet, worker: RemoteWorker) -> None:
    tasks, url = len(app.definitions), worker.remote.url
    fields = {"event": "ready", "url": url, "worker_id": worker.worker_id, "queues": list(worker.queues)}
    log.info(
        "callsheet %s: %d tasks, %d slots, jobs from %s",
        __version__,
        tasks,
        worker.options.concurrency,
        url,
        extra={"fields": fields},
    )


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
    engine = await app.engine()
    url, durability = without_password(app.database_url), engine.store.durability
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
    if engine.transport is not None:
        log.info("transport %s, messages in %s", *told_of(app.redis_url, engine.transport))


def told_of(redis_url: str | None, transport: Transport) -> tuple[str, str]:
    """The transport for the log: its URL, and how its streams are called."""
    return without_password(redis_url or ""), transport.wire.stream("{queue}")
