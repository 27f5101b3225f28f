"""Finds a request's route: paths without parameters by index, all other paths by searching the routes in order.

FastAPI tries the routes one by one, and those of an included router twice; the search was a tenth of the cost of `POST
/api/jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


def install(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Include all routers with their startup handlers, then flatten and index their routes."""
    for router in routers:
        app.include_router(router)
    app.router.routes[:] = _flat(list(app.router.routes))
    app.router.middleware_stack = LiteralPaths(app.router)


class LiteralPaths:
    """An ASGI app: a router with an index of paths without parameters."""

    def __init__(self, router: APIRouter) -> None:
        self._search = router.app
        self._router_of = dict(_literal(router.routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the indexed route of its path, else to the router's search."""
        router = self._router_of.get((scope.get("method", ""), scope.get("path", "")))
        await (router or self._search)(scope, receive, send)


def _flat(routes: Sequence[BaseRoute]) -> Iterator[BaseRoute]:
    """Yield the routes, replacing included routers with their routes; raises ValueError for what that would drop."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is None:
            yield route
            continue
        context: Any = getattr(route, "include_context", None)
        if context is None or context.prefix or context.dependencies:
            raise ValueError("an included router has its prefix and its dependencies itself, in each of its routes")
        yield from _flat(inner.routes)


def _literal(routes: Sequence[BaseRoute]) -> Iterator[tuple[tuple[str, str], APIRouter]]:
    """Yield a router for each method and path without parameters, unless an earlier route takes that path."""
    for route in routes:
        if isinstance(route, APIRoute) and "{" not in route.path:
            for method in route.methods or ():
                scope = {"type": "http", "method": method, "path": route.path}
                if next(other for other in routes if other.matches(scope)[0] is Match.FULL) is route:
                    alone = APIRouter()
                    alone.routes.append(route)
                    yield (method, route.path), alone


class RawRoute(APIRoute):
    """`APIRouter(route_class=RawRoute)`: the endpoint takes only the request, and returns a Response.

    FastAPI documents the route, but resolves no parameters: that was a third of the cost of `POST /v1/jobs`.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint itself."""
        return self.endpoint
