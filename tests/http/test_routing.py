"""The index of literal paths: it picks the route that the search in order would have picked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from callsheet.http import routing


def _router(*paths: str, method: str = "GET", names: str = "") -> APIRouter:
    router = APIRouter()
    for path in paths:

        async def endpoint(request: Request, own: str = names or path) -> Response:
            return PlainTextResponse(own)

        router.add_api_route(path, endpoint, methods=[method], response_model=None)
    return router


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    inner = _router("/inner", "/jobs/all")
    outer = _router("/jobs/{job_id}", "/first")
    outer.include_router(inner)
    app = FastAPI(redirect_slashes=False)
    again = _router("/first", names="a later route of the same path")
    routing.install(app, (outer, again, _router("/first", method="POST", names="posted")))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test") as client:
        yield client


@pytest.mark.parametrize(("path", "own"), [("/first", "/first"), ("/inner", "/inner"), ("/jobs/x", "/jobs/{job_id}")])
async def test_a_path_finds_its_first_route(client: httpx2.AsyncClient, path: str, own: str) -> None:
    assert (await client.get(path)).text == own


async def test_an_earlier_route_with_a_parameter_keeps_the_paths_that_it_matches(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/jobs/all")).text == "/jobs/{job_id}"


async def test_methods_of_one_path_are_apart(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/first")).text == "posted"
    assert (await client.post("/inner")).status_code == 405
    assert (await client.get("/nowhere")).status_code == 404


async def test_what_a_router_does_at_the_start_and_the_end_is_done() -> None:
    log: list[str] = []

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        log.append("started")
        yield
        log.append("ended")

    app = FastAPI()
    routing.install(app, (APIRouter(lifespan=life),))
    async with app.router.lifespan_context(app):
        assert log == ["started"]
    assert log == ["started", "ended"]


@pytest.mark.parametrize("options", [{"prefix": "/v2"}, {"dependencies": [Depends(_router)]}])
def test_an_inclusion_whose_options_would_be_dropped_is_refused(options: dict[str, Any]) -> None:
    outer = APIRouter()
    outer.include_router(_router("/inner"), **options)
    with pytest.raises(ValueError, match="has its prefix and its dependencies itself"):
        routing.install(FastAPI(), (outer,))
