"""The app and the HTTP server: created, started, and stopped within two seconds, even with many open streams."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import uvicorn
from fastapi import APIRouter, FastAPI

from callsheet.engine import Engine, telemetry
from callsheet.engine.housekeeping import DAY_MS, Chores, Housekeeping
from callsheet.engine.operations import Operations
from callsheet.kernel.errors import StoreError
from callsheet.objects import Objects, open_objects

from . import auth, health, problems, routing
from .connections import BoundedProtocol, ConnectionCounter
from .keys import ApiKeys
from .limits import Limits
from .maintenance import FileMaintenance
from .middleware import EdgeRules, RequestMiddleware
from .state import ServerState

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from callsheet.catalog.protocol import Catalog
    from callsheet.net.guard import StorageRules
    from callsheet.outbox import Endpoints

log = logging.getLogger("callsheet.http")
# Routes that need no API key.
OPEN = frozenset({"/healthz", "/readyz", "/metrics", "/internal/worker/enroll", "/objects/{key}", "/studio/session"})
SHUTDOWN_S = 2
DEAD_PEER_MS = 20_000
BACKLOG = 2_048
JOB_TTL_S = 24 * 3600
KEEP_ALIVE_S = 5  # an idle connection is closed after this time


class ServerOptions(NamedTuple):
    """The configuration of a server. `auth` False treats every client as an admin: use it only on a local machine.

    `opens` False: the engine is already open, and its owner closes it. `objects` are open, too; without `objects` and
    `objects_url` the server has no object storage. `catalog` is the open catalogue of videos. `endpoints` are
    the webhook endpoints, None without webhooks; `storage_rules` say which storages requests may name.
    """

    api_key: str = ""
    auth: bool = True
    limits: Limits = Limits()
    job_ttl_s: int = JOB_TTL_S
    migrate: bool = False
    housekeeping: bool = True
    opens: bool = True
    objects_url: str = ""
    objects: Objects | None = None
    catalog: Catalog | None = None
    endpoints: Endpoints | None = None
    storage_rules: StorageRules | None = None
    audit_days: int = 400
    edge: EdgeRules = EdgeRules()


def create_app(
    engine: Engine, routers: Sequence[APIRouter], options: ServerOptions | None = None, *, version: str = "0"
) -> FastAPI:
    """Return the app of one process. Startup opens the engine, shutdown closes the engine."""
    settings = options or ServerOptions()
    edge = settings.edge
    if not settings.auth:  # every client is an admin, so pages of other sites must be kept out
        edge = edge._replace(hosts=edge.hosts._replace(keyless=True))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if settings.migrate:
            await engine.store.migrate()
        async with contextlib.AsyncExitStack() as stack:
            if settings.opens:
                await stack.enter_async_context(engine)
            if settings.housekeeping:
                await stack.enter_async_context(Housekeeping(engine, Chores(audit_ms=settings.audit_days * DAY_MS)))
            keys = ApiKeys(engine.store, bootstrap=settings.api_key) if settings.auth else None
            app.state.server_state = state = ServerState(engine, keys, settings.limits, settings.job_ttl_s)
            state.proxies = edge.proxies
            state.endpoints, state.storage_rules = settings.endpoints, settings.storage_rules
            state.objects = settings.objects
            state.catalog = settings.catalog
            if state.objects is None and settings.objects_url:
                state.objects = await stack.enter_async_context(
                    await open_objects(settings.objects_url, engine.store, sealer=engine.sealer)
                )
            with contextlib.suppress(StoreError):
                await state.quotas.publish()
            if settings.housekeeping:
                state.operations = await stack.enter_async_context(Operations(engine, state.quotas))
                if state.objects is not None:
                    await stack.enter_async_context(FileMaintenance(state, state.objects))
            stack.push_async_callback(state.audit.close)
            stack.callback(telemetry.observe(state.depths.sources))
            stack.callback(state.depths.close)
            yield
            state.stop()

    app = FastAPI(
        title="Callsheet",
        version=version,
        summary="A durable job system for long, heavy work.",
        lifespan=lifespan,
        redoc_url=None,
        docs_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,  # a redirect would contain the client's Host header
    )
    problems.install(app)
    routing.install(app, (health.router, *routers))
    _document_security(app)
    app.state.connections = ConnectionCounter(edge.connections, edge.proxies)
    _put_in_front(app, settings, edge)
    return app


def _put_in_front(app: FastAPI, settings: ServerOptions, edge: EdgeRules) -> None:
    """Wrap the whole stack: FastAPI would run a middleware inside its handler of unexpected errors."""
    build = app.build_middleware_stack

    def build_wrapped() -> ASGIApp:
        return RequestMiddleware(build(), settings.limits.body_bytes, edge, settings.api_key)

    app.build_middleware_stack = build_wrapped  # type: ignore[method-assign]


def _document_security(app: FastAPI) -> None:
    """Add the security schemes to the OpenAPI document, once, instead of a dependency at each route."""
    build_document = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = build_document()
            schema.setdefault("components", {})["securitySchemes"] = auth.SCHEMES
            for path, operations in schema["paths"].items():
                for operation in operations.values():
                    operation["responses"].pop("422", None) if _without_422(operation) else None
                    if path not in OPEN:
                        operation["security"] = [{"bearer": []}, {"apiKey": []}, {"session": []}]
            app.openapi_schema = _hoist_definitions(schema)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's own way to extend it


def _hoist_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI schema with nested `$defs` moved to its components; each route body brings its own `$defs`."""
    definitions: dict[str, Any] = {}

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(part) for part in node]
        if not isinstance(node, dict):
            return node
        definitions.update({name: walk(part) for name, part in node.get("$defs", {}).items()})
        return {
            name: part.replace("#/$defs/", "#/components/schemas/") if name == "$ref" else walk(part)
            for name, part in node.items()
            if name != "$defs"
        }

    result: dict[str, Any] = walk(schema)
    result["components"].setdefault("schemas", {}).update(definitions)
    return result


def _without_422(operation: dict[str, Any]) -> bool:
    """Return whether an operation documents FastAPI's default 422 response, which our problem responses replace."""
    content = operation["responses"].get("422", {}).get("content", {})
    return "application/json" in content


class Server(uvicorn.Server):
    """A uvicorn server whose shutdown ends event streams first: streams never end by themselves."""

    def __init__(self, app: FastAPI, sockets: list[socket.socket], *, access_log: bool = False) -> None:
        self._sockets = sockets
        self._app = app
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=access_log,
            lifespan="on",
            timeout_graceful_shutdown=SHUTDOWN_S,
            server_header=False,
            backlog=BACKLOG,
            ws="none",
            http=functools.partial(BoundedProtocol, connections=app.state.connections),  # type: ignore[arg-type] # it makes them
            timeout_keep_alive=KEEP_ALIVE_S,
            proxy_headers=False,  # `proxies.py` reads these headers, from trusted proxies only
        )
        super().__init__(config)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that the server listens on."""
        host, port = self._sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def run_until_stopped(self) -> None:
        """Serve requests until a signal arrives or `should_exit` is set."""
        await self.serve(sockets=self._sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then run uvicorn's shutdown."""
        state: ServerState | None = getattr(self._app.state, "server_state", None)
        if state is not None:
            state.stop()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket whose connections detect a lost peer; raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: also limits unacknowledged data
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_MS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
