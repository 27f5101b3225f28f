"""A server in this process, with or without a worker beside it: opened, greeted, stopped by signals."""

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
from typing import TYPE_CHECKING, NamedTuple

import click

from callsheet import __version__
from callsheet.api import routers as api
from callsheet.contracts.aura import routes as aura
from callsheet.contracts.control_plane import enrolment, files
from callsheet.contracts.control_plane import routes as control_plane
from callsheet.contracts.cortana import routes as cortana
from callsheet.contracts.cortana.keeping import Keeping
from callsheet.contracts.euterpe import routes as euterpe
from callsheet.contracts.redis_gateway import routes, streams
from callsheet.engine.quotas import DEFAULTS, Quota, check_quota
from callsheet.http.body_pace import Pace
from callsheet.http.connections import ConnectionLimits
from callsheet.http.hosts import Hosts
from callsheet.http.keys import ApiKeys, strong
from callsheet.http.limits import Limits
from callsheet.http.middleware import EdgeRules
from callsheet.http.proxies import Proxies
from callsheet.http.server import Server, ServerOptions, create_app, listen
from callsheet.kernel.durations import seconds
from callsheet.net.guard import StorageRules
from callsheet.objects import objects_from_url
from callsheet.outbox.shares import MAX_BATCH
from callsheet.studio import mount

from .acts import note
from .failures import Told, WrongInput
from .outgoing import Outgoing, storage_rules, webhook_rules
from .passwords import without_password
from .serving import told_of

if TYPE_CHECKING:
    from callsheet.catalog.protocol import Catalog
    from callsheet.engine import Engine
    from callsheet.objects import Objects
    from callsheet.worker import Worker

log = logging.getLogger("callsheet.cli")
ROUTERS = (
    routes.router,
    streams.router,
    control_plane.router,
    files.worker_router,
    files.router,
    aura.router,
    mount.router,
    euterpe.router,
    cortana.router,
    enrolment.router,
    *api.ROUTERS,
)


@dataclass(frozen=True)
class Flags:
    """What the flags and the environment say."""

    host: str
    port: int
    api_key: str | None
    auth: str
    job_ttl: str
    queue_depth: int
    rate_limit: int
    streams: int
    webhooks: str
    webhook_concurrency: int
    webhook_http: bool
    webhook_networks: tuple[str, ...] | None
    webhook_ports: tuple[str, ...] | None
    fair_queues: tuple[str, ...] | None
    objects_url: str | None
    catalog_url: str | None
    log_format: str
    log_level: str
    database_url: str
    redis_url: str | None
    webhook_batch: int = 10
    wait: str = "0"
    storage_http: bool = False
    storage_networks: tuple[str, ...] | None = None
    storage_ports: tuple[str, ...] | None = None
    quota_queued: int = DEFAULTS.queued or 0
    quota_running: int = DEFAULTS.running or 0
    quota_bytes: int = DEFAULTS.bytes or 0
    quota_streams: int = DEFAULTS.streams or 0
    quota_rate: int = DEFAULTS.rate or 0
    quota_uploads: int = DEFAULTS.uploads or 0
    audit_days: int = 400
    allowed_hosts: tuple[str, ...] | None = None
    trusted_proxies: tuple[str, ...] | None = None
    body_idle: str = "10s"
    body_rate: int = 1024
    upload_idle: str = "30s"
    upload_rate: int = 1024
    strangers: int = 1000
    strangers_per_address: int = 300

    def options(self) -> ServerOptions:
        """For the server; raises WrongInput, InvalidInput."""
        if self.auth == "off" and not _is_loopback(self.host):
            raise WrongInput(f"--auth off is for this machine alone, and {self.host} is open to others; leave auth on")
        if self.objects_url:
            objects_from_url(self.objects_url)  # what is wrong with it is told before anything begins
        webhook_rules(self), storage_rules(self)  # what is wrong with them likewise
        if self.webhook_batch > MAX_BATCH:
            raise WrongInput(f"--webhook-batch is at most {MAX_BATCH}")
        limits = Limits(
            rate=float(self.rate_limit),
            streams=self.streams,
            queue_depth=max(0, self.queue_depth),
            quota=self._quota(),
        )
        ttl_s = max(1, round(seconds(self.job_ttl)))
        if self.api_key:
            strong(self.api_key)
        return ServerOptions(
            self.api_key or "",
            self.auth == "on",
            limits,
            ttl_s,
            opens=False,
            objects_url=self.objects_url or "",
            audit_days=self.audit_days,
            edge=self._edge(),
        )

    def _quota(self) -> Quota:
        return check_quota(Quota(**{name: getattr(self, f"quota_{name}") for name in Quota._fields}))

    def _edge(self) -> EdgeRules:
        return EdgeRules(
            Pace(seconds(self.body_idle), max(0, self.body_rate)),
            Pace(seconds(self.upload_idle), max(0, self.upload_rate)),
            ConnectionLimits(self.strangers, self.strangers_per_address),
            Hosts.of(self.allowed_hosts, keyless=self.auth == "off"),
            Proxies.of(self.trusted_proxies or ()),
        )


class Kept(NamedTuple):
    """What is open already."""

    objects: Objects | None = None
    catalog: Catalog | None = None
    sock: socket.socket | None = None


def listening(flags: Flags) -> socket.socket:
    """The server's socket; raises Told, with what to do when another one is there."""
    try:
        return listen(flags.host, flags.port)
    except OSError as error:
        told = f"cannot listen at {flags.host}:{flags.port}: {os.strerror(error.errno or 0)}"
        if error.errno == errno.EADDRINUSE:
            told += "; perhaps another callsheet serves there, else take another one with --port"
        raise Told(told) from error


async def host(engine: Engine, flags: Flags, worker: Worker | None = None, kept: Kept = Kept()) -> None:  # noqa: B008
    """Serve until a signal; then the server goes first, and the worker drains."""
    engine.fair_queues = frozenset(flags.fair_queues or ())
    outgoing = Outgoing.of(engine, flags)
    options = flags.options()._replace(
        objects=kept.objects,
        catalog=kept.catalog,
        endpoints=outgoing.endpoints,
        storage_rules=StorageRules(storage_rules(flags)),
    )
    app = create_app(engine, ROUTERS, options, version=__version__)
    server = Server(app, [kept.sock or listening(flags)])
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment] # signals are ours
    stops = _Stops(server, worker, outgoing)
    stops.listen()
    _greet(server, engine, flags, kept)
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        if kept.catalog is not None:
            await stack.enter_async_context(Keeping(engine, kept.catalog, kept.objects))
        group.create_task(_serve(server, worker, outgoing))
        group.create_task(outgoing.run())
        if worker is not None:
            group.create_task(worker.run())


async def _serve(server: Server, worker: Worker | None, outgoing: Outgoing) -> None:
    await server.run_until_stopped()
    outgoing.stop()
    if worker is not None:
        worker.stop()
    if not server.started:
        raise Told("the server could not start; the log says why")


class _Stops:
    """Signals: the first stops the server and drains the worker, the second hands back what runs."""

    def __init__(self, server: Server, worker: Worker | None, outgoing: Outgoing) -> None:
        self._server = server
        self._worker = worker
        self._outgoing = outgoing
        self._count = 0

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.once_more)

    def once_more(self) -> None:
        self._count += 1
        log.info("stopping" if self._count == 1 else "stopping at once")
        self._server.should_exit = True
        self._outgoing.stop()
        if self._worker is not None:
            self._worker.stop(hard=self._count > 1)


async def ensure_key(engine: Engine, flags: Flags) -> None:
    """The first start makes an admin's key and shows it once; without any key nobody could ask for anything."""
    if flags.auth == "off" or flags.api_key:
        return
    keys = ApiKeys(engine.store)
    if any(key.revoked_at is None for key in await keys.list()):
        return
    text, key = await keys.create("made by callsheet up", scopes=["admin"])
    await note(engine.store, "key.created", target=key.key_id, name=key.name, scopes="admin")
    click.echo(f"API key (shown once, keep it): {text}")


def _greet(server: Server, engine: Engine, flags: Flags, kept: Kept) -> None:
    host, port = server.address
    store = without_password(flags.database_url)
    log.info(
        "callsheet %s at http://%s:%d, store %s (%s)",
        __version__,
        host,
        port,
        store,
        engine.store.durability,
        extra={"fields": {"event": "serving", "host": host, "port": port, "store": store}},
    )
    files = f", files in {kept.objects.place}" if kept.objects is not None else ""
    log.info("studio http://%s:%d/studio%s", host, port, files)
    if engine.transport is not None:
        log.info("transport %s, messages in %s", *told_of(flags.redis_url, engine.transport))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
