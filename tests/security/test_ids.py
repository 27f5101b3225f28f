"""Ids that are nearly the victim's: no manipulated id gives a stranger access, on any store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import stores
from tests.http.raw import exchange
from tests.security.estate import SECRET, STRANGER, VICTIM, Town, town
from tests.security.routes import READ, ROUTES, WORKER, WRITE, Route

OWNED = [route for route in ROUTES if route.owned]
PIECES = ["object:", "..", "%2e%2e", "%2f", "/", "//", ".", "%00", "%0d%0a", " ", "%20", "*", "~", "'", '"', "%", "@"]
PIECES += [
    VICTIM,
    STRANGER,
    f"uploads/{VICTIM}/",
    f"outputs/{VICTIM}/",
    "jobs/",
    "{",
    "}",
    "\\",
    "%u002e",
    "é",
    "-",
    "0",
]
around = st.lists(st.sampled_from(PIECES), max_size=3).map("".join)
change = st.sampled_from([str, str.upper, str.title, lambda text: text[::-1], lambda text: quote(text[0]) + text[1:]])


@pytest.fixture(params=stores.THREE)
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Town]:
    async with town(request.param, tmp_path) as here:
        yield here


async def test_no_bent_id_of_the_victim_opens_anything_for_a_stranger(here: Town) -> None:
    tries: list[tuple[Route, str]] = []

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(OWNED), around, around, change)
    def choose(route: Route, before: str, after: str, bend: object) -> None:
        name = route.path.partition("{")[2].partition("}")[0] if "{" in route.path else "queued_id"
        own = str(getattr(here.estate, name))
        bent_text = before + bend(own) + after  # type: ignore[operator]
        tries.append((route, here.estate.fill(route.path.replace(f"{{{name}}}", bent_text))))

    await asyncio.to_thread(choose)
    key = await here.live.text(STRANGER, scopes=[READ, WRITE, WORKER])
    for route, path in tries:
        status, text = await send(here, route, path, key)
        message = f"{route.name} as {path!r}: {text[:400]}"
        assert SECRET not in text, message
        assert 300 <= status < 500 or not (status >= 500 or names_victim(text, here)), message
        assert f"/{VICTIM}/" not in text.partition("location:")[2].partition("\r\n")[0], message


async def test_no_id_and_no_parameter_with_a_nul_breaks_anything(here: Town) -> None:
    """Whoever asks: PostgreSQL keeps no NUL, and none of the stores has anything under such a name."""
    paths = here.live.server.config.app.openapi()["paths"]  # type: ignore[union-attr]
    own = await here.live.text(VICTIM, scopes=[READ, WRITE, WORKER])
    admin = here.live.client.headers["authorization"].partition(" ")[2]
    for route in ROUTES:
        path = here.estate.fill(route.path or route.template)
        name = route.path.partition("{")[2].partition("}")[0]
        mine = str(getattr(here.estate, name)) if name else ""
        bent_texts = [path.replace(mine, f"{mine[:4]}%00"), path.replace(mine, "%00")] if mine else []
        message = paths.get(route.template.replace(":path", ""), {}).get(route.method.lower(), {})
        names = [one["name"] for one in message.get("parameters", ()) if one["in"] == "query"]
        bent_texts += [
            f"{path.partition('?')[0]}?{one}=%00" for one in names if not route.stream
        ]  # a stream would stay open
        for key in (own, admin):
            for one in bent_texts:
                status, text = await send(here, route, one, key)
                assert status < 500, f"{route.name} as {one!r}: {text[:400]}"


async def send(here: Town, route: Route, path: str, key: str) -> tuple[int, str]:
    """Send a request whose path stays unnormalised: a client's library would tidy it up. Its status and whole text."""
    body = b"" if route.body is None else json.dumps(here.estate.fill(route.body)).encode()
    line = f"{route.method} /{path.removeprefix('/').replace(' ', '%20')} HTTP/1.1"
    head = (line, "Host: localhost", f"X-API-Key: {key}", "Content-Type: application/json", "Connection: close")
    request = "\r\n".join((*head, f"Content-Length: {len(body)}", "", "")).encode()
    answer = (await exchange(here.live, request + body)).decode("utf-8", "replace")
    assert answer.startswith("HTTP/1.1 "), f"{line}: {answer[:200]!r}"
    return int(answer.split()[1]), answer


def names_victim(text: str, here: Town) -> bool:
    """Return whether a successful answer concerns the victim; a bent path may lead to another route."""
    return any(value in text for value in vars(here.estate).values() if len(value) > 8)
