"""A worker in this process: its event loop, its signals, its health endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from callsheet import __version__
from callsheet.app import Callsheet
from callsheet.app.builtin import add_builtin
from callsheet.media import binaries
from callsheet.media.errors import FfmpegMissing
from callsheet.settings import Address
from callsheet.store.tasks import end
from callsheet.worker.options import default_worker_id

from .apps import Places, load_app
from .errors import CommandFailed, WrongInput, without_password
from .open_store import Patience
from .supervisor import ChildSlot, await_parent_death

if TYPE_CHECKING:
    from callsheet.engine.transport import Transport
    from callsheet.worker import Worker
    from callsheet.worker.options import WorkerOptions
    from callsheet.worker.remote import RemoteWorker

    from .worker import Flags

log = logging.getLogger("callsheet.cli")
TOKENS = ("CALLSHEET_TOKEN", "CALLSHEET_WORKER_TOKEN")


def run_worker(target: str | None, flags: Flags, slot: ChildSlot | None) -> bool:
    """Run jobs until stopped; return True if a server drained the worker. Raises what imports and openings raise."""
    check_chosen_ffmpeg()
    places = Places(flags.database_url, flags.redis_url, flags.objects_url, flags.catalog_url)
    debug = flags.log_level == "debug"
    app = load_app(target, places, debug=debug) if target else _builtin_app(places, flags)
    app.objects_url = app.objects_url or app.default_objects_url()
    if flags.url is not None:
        remote = _remote_worker(app, flags, flags.url, slot)
        run_on_fast_loop(_work(app, remote, flags, slot, remote.introduce))
        return remote.drained
    run_on_fast_loop(_work(app, app.worker(**_options(flags, slot)), flags, slot))
    return False


def check_chosen_ffmpeg() -> None:
    """Log known holes of the ffmpeg that CALLSHEET_FFMPEG names; raise WrongInput at the start if it is unusable."""
    if not os.environ.get(binaries.VARIABLE):
        return
    try:
        choice = binaries.choose()
    except FfmpegMissing as error:
        raise WrongInput(str(error)) from error
    if choice.danger:
        log.warning("%s=%s: %s", binaries.VARIABLE, choice.binary.path, choice.danger)


def _builtin_app(places: Places, flags: Flags) -> Callsheet:
    """Return an app with the built-in tasks, under the server's own limits: a job that it accepts must run here."""
    storage, max_bytes = flags.storage_rules(), flags.max_source * 1_000_000
    app = places.apply_to(Callsheet())
    return add_builtin(app, flags.webhook_rules(), storage=storage, max_source_bytes=max_bytes)


def _remote_worker(app: Callsheet, flags: Flags, url: str, slot: ChildSlot | None) -> RemoteWorker:
    from callsheet.worker.remote import ENROLMENT, RemoteOptions  # noqa: PLC0415 - a local worker needs none of it

    for name in TOKENS:
        os.environ.pop(name, None)  # programs that tasks start must not see the token
    token = flags.token or ""
    if flags.token_file is not None and not token.startswith(ENROLMENT):
        token = ""
    remote = RemoteOptions(url, token, flags.token_file, flags.labels or (), flags.claim_wait)
    return app.remote_worker(remote, **_options(flags, slot))


def run_on_fast_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run the only coroutine of a process, on uvloop if it is installed, with few garbage collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # fewer collections, in a process that only does jobs: 8 % more of them
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(work)


def _options(flags: Flags, slot: ChildSlot | None) -> WorkerOptions:
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
    if slot is not None and slot.number:  # the first of a pod has the pod's own name
        options["worker_id"] = f"{default_worker_id()}-{slot.number + 1}"
    return options


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - not there on every system
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


class _Signals:
    """Stop signals: the first drains the worker, the second releases its jobs. Before the start one is enough."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._count = 0
        self._opening = asyncio.current_task()

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)

    def start_finished(self) -> None:
        self._opening = None

    def stop(self) -> None:
        self._count += 1
        log.info("stopping" if self._count == 1 else "stopping at once: running jobs are handed back")
        self._worker.stop(hard=self._count > 1)
        if self._opening is not None:
            self._opening.cancel()


async def _work(
    app: Callsheet,
    worker: Worker,
    flags: Flags,
    slot: ChildSlot | None,
    introduce: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run a worker until it ends. A remote worker introduces itself to its server instead of opening the store."""
    signals = _Signals(worker)
    signals.listen()
    async with contextlib.AsyncExitStack() as stack:
        try:
            if flags.health is not None:
                await _serve_health(stack, worker, flags.health, slot)
            await Patience(flags.wait).open(introduce or (lambda: stack.enter_async_context(app)))
        except asyncio.CancelledError:
            return  # stopped before it could begin
        signals.start_finished()
        if slot is not None:
            stack.push_async_callback(end, asyncio.create_task(await_parent_death(slot, signals.stop)))
        if introduce is None:
            await _announce(app, worker, flags)
        else:
            fields = {"url": flags.url, "worker_id": getattr(worker, "worker_id", "")}
            _log_start(app, worker, f"jobs from {flags.url}", fields)
        await worker.run(burst=flags.burst)


async def _serve_health(
    stack: contextlib.AsyncExitStack, worker: Worker, address: Address, slot: ChildSlot | None
) -> None:
    from callsheet.worker.health import Health  # noqa: PLC0415 - only who asks for it needs it

    port = address.port + (slot.number if slot is not None else 0)
    try:
        await stack.enter_async_context(Health(worker, address.host, port))
    except OSError as error:
        raise CommandFailed(f"cannot listen at {address.host}:{port}: {os.strerror(error.errno or 0)}") from error
    log.info("health at http://%s:%d", address.host, port)


async def _announce(app: Callsheet, worker: Worker, flags: Flags) -> None:
    engine = await app.engine()
    if flags.fair_queues:
        engine.fair_queues = frozenset(flags.fair_queues)
    url, durability = without_password(app.database_url), engine.store.durability
    _log_start(app, worker, f"store {url} ({durability})", {"store": url, "durability": durability})
    if engine.transport is not None:
        log.info("transport %s, messages in %s", *transport_names(app.redis_url, engine.transport))


def _log_start(app: Callsheet, worker: Worker, source: str, more: Mapping[str, str | None]) -> None:
    tasks, slots = len(app.definitions), worker.options.concurrency
    fields = {"event": "ready", **more, "queues": list(worker.queues)}
    log.info("callsheet %s: %d tasks, %d slots, %s", __version__, tasks, slots, source, extra={"fields": fields})


def transport_names(redis_url: str | None, transport: Transport) -> tuple[str, str]:
    """Return the transport's URL without its password, and the name pattern of its streams, for the log."""
    return without_password(redis_url or ""), transport.wire.stream("{queue}")
