"""`/healthz` (the process responds), `/readyz` (its store responds) and `/metrics`."""

from __future__ import annotations

import asyncio
import ipaddress

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from callsheet.kernel.errors import StoreError
from callsheet.worker.health import MISSING, scraper

from . import problems
from .auth import authenticate, key_of
from .problems import Problem
from .state import state_of

PATIENCE_S = 2.0
router = APIRouter(tags=["health"])


@router.get("/healthz", summary="The process is alive")
async def healthz() -> dict[str, str]:
    """Report that the process is alive: returns 200 as long as the process responds at all."""
    return {"status": "ok"}


@router.get("/readyz", summary="The store answers", responses=problems.responses("store_unavailable", "shutting_down"))
async def readyz(request: Request) -> JSONResponse:
    """Report whether the process is ready: the store responds, and no shutdown has begun."""
    state = state_of(request)
    if state.stopping.is_set():
        raise Problem("shutting_down", "this process is going down", headers={"Retry-After": "1"})
    try:
        async with asyncio.timeout(PATIENCE_S):
            await state.engine.store.now()
    except (TimeoutError, StoreError) as error:
        raise Problem("store_unavailable", "the store does not answer", headers={"Retry-After": "2"}) from error
    return JSONResponse({"status": "ready", "store": state.engine.store.durability, "streams": state.streams.total})


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        501: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "the extra is not installed"},
        **problems.responses("unauthorized"),
    },
)
async def metrics(request: Request) -> Response:
    """Read metrics in the Prometheus format. Requests from other machines need a key, since metrics name the queues."""
    state = state_of(request)
    if not _is_local(request):
        await authenticate(state, key_of(request))
    scrape = scraper()
    if scrape is None:
        return Response(MISSING, 501, media_type="text/plain")
    await state.depths.sample()
    return Response(await asyncio.to_thread(scrape), media_type="text/plain; version=0.0.4; charset=utf-8")


def _is_local(request: Request) -> bool:
    proxy_header = request.headers.get("x-forwarded-for") or request.headers.get("forwarded")
    try:
        return not proxy_header and request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
