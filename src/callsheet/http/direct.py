"""Routes that read their request by themselves: FastAPI documents the route, but resolves no parameters.

Resolving parameters was a third of the cost of `POST /v1/jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response


class Direct(APIRoute):
    """`APIRouter(route_class=Direct)`: the endpoint takes only the request, and returns a Response."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint itself."""
        return self.endpoint
