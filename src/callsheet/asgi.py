"""Composes the HTTP server: every router, the webhook deliverer and the video maintenance, on parts that an app opened.

`Callsheet.asgi()` returns an `AsgiServer`, `callsheet serve` and `callsheet up` run a `Composition`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from callsheet.api import routers as api
from callsheet.catalog import BESIDE_REDIS, catalog_url
from callsheet.contracts.aura import routes as aura
from callsheet.contracts.control_plane import enrolment, files
from callsheet.contracts.control_plane import routes as control_plane
from callsheet.contracts.cortana import routes as cortana
from callsheet.contracts.cortana.maintenance import Keeping
from callsheet.contracts.euterpe import routes as euterpe
from callsheet.contracts.redis_gateway import routes, streams
from callsheet.engine.quotas import Quota, check_quota
from callsheet.http.body_pace import Pace
from callsheet.http.connections import ConnectionLimits
from callsheet.http.hosts import Hosts
from callsheet.http.keys import strong
from callsheet.http.limits import Limits
from callsheet.http.middleware import EdgeRules
from callsheet.http.proxies import Proxies
from callsheet.http.server import ServerOptions, create_app
from callsheet.kernel.durations import seconds
from callsheet.kernel.errors import CallsheetError, InvalidInput, SchemaMismatch, StoreError
from callsheet.net.guard import AddressSettings, StorageRules
from callsheet.outbox import Deliveries, DeliveryOptions, Endpoints
from callsheet.outbox.shares import MAX_BATCH
from callsheet.settings import SERVE
from callsheet.studio import mount

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Receive, Scope, Send

    from callsheet.catalog.protocol import Catalog
    from callsheet.engine import Engine
    from callsheet.objects import Objects
    from callsheet.outbox import Sealer

log = logging.getLogger("callsheet.http")
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


@dataclass(frozen=True, kw_only=True)
class ServerSettings(AddressSettings):
    """The settings of `callsheet serve` that the server itself needs, by the names of their flags."""

    api_key: str | None
    auth: str
    job_ttl: str
    queue_depth: int
    rate_limit: int
    streams: int
    webhooks: str
    webhook_concurrency: int
    webhook_batch: int
    fair_queues: tuple[str, ...] | None
    quota_queued: int
    quota_running: int
    quota_bytes: int
    quota_streams: int
    quota_rate: int
    quota_uploads: int
    audit_days: int
    allowed_hosts: tuple[str, ...] | None
    trusted_proxies: tuple[str, ...] | None
    body_idle: str
    body_rate: int
    upload_idle: str
    upload_rate: int
    strangers: int
    strangers_per_address: int

    @classmethod
    def read(cls, chosen: Mapping[str, Any], environ: Mapping[str, str]) -> Self:
        """Return the settings: those in `chosen`, else from their variables, else the defaults; raises InvalidInput."""
        names = {field.name for field in fields(cls)}
        if unknown := sorted(chosen.keys() - names):
            raise InvalidInput(f"the server has no setting {unknown[0]!r}; it has {', '.join(sorted(names))}")
        values = {setting.parameter: setting.value_in(environ) for setting in SERVE if setting.parameter in names}
        return cls(**{**values, **chosen})

    def options(self, objects: Objects | None = None, catalog: Catalog | None = None) -> ServerOptions:
        """Return the options of a server whose engine is open; raises InvalidInput."""
        self.webhook_rules()
        if self.webhook_batch > MAX_BATCH:
            raise InvalidInput(f"--webhook-batch is at most {MAX_BATCH}")
        if self.api_key:
            strong(self.api_key)
        return ServerOptions(
            self.api_key or "",
            self.auth == "on",
            self._limits(),
            max(1, round(seconds(self.job_ttl))),
            opens=False,
            objects=objects,
            catalog=catalog,
            storage_rules=StorageRules(self.storage_rules()),
            audit_days=self.audit_days,
            edge=self._edge(),
        )

    def _limits(self) -> Limits:
        quota = check_quota(Quota(**{name: getattr(self, f"quota_{name}") for name in Quota._fields}))
        depth = max(0, self.queue_depth)
        return Limits(rate=float(self.rate_limit), streams=self.streams, queue_depth=depth, quota=quota)

    def _edge(self) -> EdgeRules:
        return EdgeRules(
            Pace(seconds(self.body_idle), max(0, self.body_rate)),
            Pace(seconds(self.upload_idle), max(0, self.upload_rate)),
            ConnectionLimits(self.strangers, self.strangers_per_address),
            Hosts.of(self.allowed_hosts, keyless=self.auth == "off"),
            Proxies.of(self.trusted_proxies or ()),
        )


class Parts(NamedTuple):
    """What an app has opened for its server. `sealer` encrypts the secrets of webhook endpoints."""

    engine: Engine
    sealer: Sealer
    objects: Objects | None = None
    catalog: Catalog | None = None


class Composition:
    """The server of one process with what runs beside it: `async with Composition(parts, settings, version)`."""

    def __init__(self, parts: Parts, settings: ServerSettings, version: str) -> None:
        engine = self.engine = parts.engine
        engine.fair_queues = frozenset(settings.fair_queues or ())
        endpoints = Endpoints(engine.store, parts.sealer, settings.webhook_rules())
        delivery = DeliveryOptions(batch=settings.webhook_batch, concurrency=settings.webhook_concurrency)
        self._deliveries = Deliveries(engine, endpoints, delivery) if settings.webhooks == "on" else None
        self._maintenance = Keeping(engine, parts.catalog, parts.objects) if parts.catalog is not None else None
        options = settings.options(parts.objects, parts.catalog)._replace(endpoints=endpoints)
        self.app: FastAPI = create_app(engine, ROUTERS, options, version=version)
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._maintenance is not None:
            await self._stack.enter_async_context(self._maintenance)
        if self._deliveries is not None:
            group = await self._stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self._deliveries.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self.stop()
        return await self._stack.__aexit__(kind, error, trace)

    def stop(self) -> None:
        """Start no more deliveries. May be called twice."""
        if self._deliveries is not None:
            self._deliveries.stop()


class OpensParts(Protocol):
    """An app, as far as its server needs one."""

    objects_url: str
    catalog_url: str

    @property
    def database_url(self) -> str:
        """The URL of the store."""

    async def engine(self) -> Engine:
        """Return the open engine."""

    async def objects(self, *, of_all_tenants: bool = False) -> Objects:
        """Return the open objects."""

    async def catalog(self) -> Catalog:
        """Return the open catalogue of videos."""

    async def close(self) -> None:
        """Close all of these."""


class AsgiServer:
    """An app's HTTP server as an ASGI application. Lifespan startup opens the app's parts, shutdown closes them."""

    def __init__(self, app: OpensParts, settings: ServerSettings, sealer: Sealer, version: str) -> None:
        settings.options()  # wrong settings are reported when the server is made, not when it starts
        self._opens, self._settings, self._sealer, self._version = app, settings, sealer, version
        self._server: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif self._server is None:
            raise RuntimeError("the server has not started: run it with lifespan, as uvicorn does with --lifespan on")
        else:
            await self._server(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self._running():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except CallsheetError as error:
            if self._server is not None:
                raise
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        app = self._opens
        try:
            objects = await app.objects(of_all_tenants=True) if app.objects_url else None
            parts = Parts(await app.engine(), self._sealer, objects, await open_catalog(app))
            async with Composition(parts, self._settings, self._version) as composition:
                server = composition.app
                async with server.router.lifespan_context(server):
                    self._server = server
                    yield
        finally:
            await app.close()


async def open_catalog(app: OpensParts) -> Catalog | None:
    """Return the open catalogue of videos; None if it is off, or if no URL names it and it does not exist."""
    url = catalog_url(app.catalog_url, app.database_url)
    if url is None or (url == BESIDE_REDIS and not app.catalog_url):
        return None
    try:
        return await app.catalog()
    except (SchemaMismatch, StoreError) as error:
        if app.catalog_url:
            raise
        log.warning("there is no search in videos: %s", error)
        return None
