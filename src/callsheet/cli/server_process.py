"""A server in this process, with or without a worker beside it: opened, announced in the log, stopped by signals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import click

from callsheet import __version__
from callsheet.app import Callsheet
from callsheet.app.sealing import sealer_from
from callsheet.asgi import Composition, Parts, ServerSettings, open_catalog
from callsheet.catalog import OFF
from callsheet.http.keys import ApiKeys
from callsheet.http.server import Server, listen
from callsheet.objects import objects_from_url
from callsheet.settings import SERVE

from .apps import Places
from .errors import CommandFailed, WrongInput, without_password
from .open_store import Patience, StopRequested, ended_by_signals, record_audit
from .worker_process import transport_names

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.objects import Objects
    from callsheet.worker import Worker

log = logging.getLogger("callsheet.cli")


@dataclass(frozen=True, kw_only=True)
class Flags(ServerSettings):
    """The settings of `callsheet serve`: those of the server, and those of its process."""

    host: str
    port: int
    wait: str
    log_format: str
    log_level: str
    database_url: str
    redis_url: str | None
    objects_url: str | None
    catalog_url: str | None

    @classmethod
    def of(cls, **chosen: object) -> Self:
        """Return these settings, and the defaults for the others."""
        return cls(**{**{setting.parameter: setting.value_in({}) for setting in SERVE}, **chosen})

    def check(self) -> None:
        """Raise WrongInput or InvalidInput for a wrong setting, before anything is opened."""
        if self.auth == "off" and not _is_loopback(self.host):
            raise WrongInput(f"--auth off is for this machine alone, and {self.host} is open to others; leave auth on")
        if self.objects_url:
            objects_from_url(self.objects_url)
        self.options()

    def places(self) -> Places:
        """Return the URLs for an app."""
        return Places(self.database_url, self.redis_url, self.objects_url or None, self.catalog_url)


async def serve(app: Callsheet, flags: Flags) -> None:
    """Run `callsheet serve` on the store of an app, until a signal."""
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.suppress(StopRequested):
            with ended_by_signals():
                patience = Patience(flags.wait)
                engine = await _open_engine(stack, app, patience)
                if flags.auth == "on" and not flags.api_key and not await ApiKeys(engine.store).list():
                    log.warning("there is no API key, so every request will be refused: callsheet keys create NAME")
                objects = await _objects(app)
                parts = Parts(engine, sealer_from(os.environ), objects, await patience.open(lambda: open_catalog(app)))
            await run_server(parts, flags)


async def serve_with_worker(app: Callsheet, flags: Flags, worker: Worker) -> None:
    """Run `callsheet up`: migrate, make the first API key, then serve and run jobs, until a signal."""
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.suppress(StopRequested):
            with ended_by_signals():
                patience = Patience(flags.wait)
                await patience.open(app.migrate)
                engine = await _open_engine(stack, app, patience)
                sock = listen_at(flags)  # before a key is shown that nothing would serve
                stack.callback(sock.close)
                await _ensure_key(engine, flags)
                objects = await _objects(app)
                catalog = await patience.open(app.catalog) if app.catalog_url != OFF else None
            await run_server(Parts(engine, sealer_from(os.environ), objects, catalog), flags, worker, sock)


async def _open_engine(stack: contextlib.AsyncExitStack, app: Callsheet, patience: Patience) -> Engine:
    engine = await patience.open(app.engine)
    stack.push_async_callback(app.close)
    return engine


async def _objects(app: Callsheet) -> Objects | None:
    return await app.objects() if app.objects_url else None


def listen_at(flags: Flags) -> socket.socket:
    """Return the server's socket; raises CommandFailed, with advice if another program uses the port."""
    try:
        return listen(flags.host, flags.port)
    except OSError as error:
        message = f"cannot listen at {flags.host}:{flags.port}: {os.strerror(error.errno or 0)}"
        if error.errno == errno.EADDRINUSE:
            message += "; perhaps another callsheet serves there, else take another one with --port"
        raise CommandFailed(message) from error


async def run_server(
    parts: Parts, flags: Flags, worker: Worker | None = None, sock: socket.socket | None = None
) -> None:
    """Serve until a signal. The first signal stops the server and drains the worker, the second releases its jobs."""
    composition = Composition(parts, flags, __version__)
    server = Server(composition.app, [sock or listen_at(flags)])
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment] # handled by _Signals
    _Signals(server, worker, composition).listen()
    _announce(server, parts, flags)
    async with composition, asyncio.TaskGroup() as group:
        group.create_task(_serve(server, worker, composition))
        if worker is not None:
            group.create_task(worker.run())


async def _serve(server: Server, worker: Worker | None, composition: Composition) -> None:
    await server.run_until_stopped()
    composition.stop()
    if worker is not None:
        worker.stop()
    if not server.started:
        raise CommandFailed("the server could not start; the log says why")


class _Signals:
    """Counts stop signals and passes them to the server, the deliveries and the worker."""

    def __init__(self, server: Server, worker: Worker | None, composition: Composition) -> None:
        self._server = server
        self._worker = worker
        self._composition = composition
        self._count = 0

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)

    def _stop(self) -> None:
        self._count += 1
        log.info("stopping" if self._count == 1 else "stopping at once")
        self._server.should_exit = True
        self._composition.stop()
        if self._worker is not None:
            self._worker.stop(hard=self._count > 1)


async def _ensure_key(engine: Engine, flags: Flags) -> None:
    """Make an admin key and print it, unless a key exists: without any key, every request would be refused."""
    if flags.auth == "off" or flags.api_key:
        return
    keys = ApiKeys(engine.store)
    if any(key.revoked_at is None for key in await keys.list()):
        return
    text, key = await keys.create("made by callsheet up", scopes=["admin"])
    await record_audit(engine.store, "key.created", target=key.key_id, name=key.name, scopes="admin")
    click.echo(f"API key (shown once, keep it): {text}")


def _announce(server: Server, parts: Parts, flags: Flags) -> None:
    host, port = server.address
    store, engine = without_password(flags.database_url), parts.engine
    log.info(
        "callsheet %s at http://%s:%d, store %s (%s)",
        __version__,
        host,
        port,
        store,
        engine.store.durability,
        extra={"fields": {"event": "serving", "host": host, "port": port, "store": store}},
    )
    files = f", files in {parts.objects.place}" if parts.objects is not None else ""
    log.info("studio http://%s:%d/studio%s", host, port, files)
    if engine.transport is not None:
        log.info("transport %s, messages in %s", *transport_names(flags.redis_url, engine.transport))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
