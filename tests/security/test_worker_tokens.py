"""A worker token that is used after it was rotated is somebody's copy.

The server revokes its worker and records this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsheet.api import workers
from callsheet.cli.testkit.proxy import Answered, Asked, Fate, FaultProxy
from callsheet.contracts.control_plane import enrolment, routes
from callsheet.http import worker_registry as known
from callsheet.http.keys import FIND, new_key
from callsheet.http.worker_registry import WorkerEvent
from callsheet.worker.remote import RemoteOptions
from callsheet.worker.remote.caller import Caller
from callsheet.worker.remote.credentials import Credentials
from tests import stores
from tests.http.conftest import postgres_url
from tests.http.live import Live, problem, serving

CLAIM: dict[str, Any] = {"streams": ["default"]}


@pytest.fixture(params=stores.THREE)
async def live(request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    url = postgres_url() if request.param == "postgres" else stores.fresh_url(request.param)
    async with serving(url, routers=[routes.router, enrolment.router, workers.router]) as live:
        await stores.empty({url: live.engine.store})
        yield live


class Clock:
    """The store's clock, to be moved on by hand."""

    def __init__(self, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_ms = 0
        real = live.engine.store.now

        async def now() -> int:
            return await real() + self.ahead_ms

        monkeypatch.setattr(live.engine.store, "now", now)


@pytest.fixture
def clock(live: Live, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(known, "KEPT_S", 0.0)
    return Clock(live, monkeypatch)


async def invited(live: Live, **bounds: Any) -> str:
    return str((await live.client.post("/v1/workers/enrolments", json=bounds)).json()["enrolment_token"])


async def enrolled(live: Live, **bounds: Any) -> tuple[str, str]:
    async with live.bare() as anybody:
        body = {"enrolment_token": await invited(live, **bounds), "worker_name": "w"}
        reply = (await anybody.post("/internal/worker/enroll", json=body)).json()
    return reply["worker_id"], reply["worker_token"]


async def call(live: Live, token: str, verb: str = "claim", **body: Any) -> httpx2.Response:
    async with live.bare() as anybody:
        headers = {"Authorization": f"Bearer {token}"}
        return await anybody.post(f"/internal/worker/{verb}", json=body, headers=headers)


async def use(live: Live, worker_id: str, token: str) -> httpx2.Response:
    return await call(live, token, worker_id=worker_id, **CLAIM)


async def rotated(live: Live, token: str) -> str:
    answer = await call(live, token, "token")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["worker_token"])


async def test_a_rotated_token_that_is_used_again_revokes_the_worker(
    live: Live, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    messages: list[WorkerEvent] = []

    async def listen(event: WorkerEvent) -> None:
        messages.append(event)

    live.state.workers.listeners.append(listen)
    worker_id, old = await enrolled(live, tenants=["acme"])
    new = await rotated(live, old)
    assert (await use(live, worker_id, new)).status_code == 200
    clock.ahead_ms = known.IN_FLIGHT_MS + 1
    with caplog.at_level(logging.WARNING, logger="callsheet.http"):
        details = problem(await use(live, worker_id, old), 401, "worker_revoked")
    assert (details["revoked"], details["drain"]) == (True, True)
    problem(await use(live, worker_id, new), 401, "worker_revoked")
    problem(await call(live, new, "token"), 401, "worker_revoked")
    assert [(e.name, e.worker_id, e.tenants) for e in messages] == [("token_reused", worker_id, ("acme",))]
    assert any(worker_id in line for line in caplog.messages)
    for secret in (old, new):
        assert secret not in caplog.text + str(messages)
    (entry,) = (await live.client.get("/v1/workers")).json()["workers"]
    assert (entry["state"], entry["token_reused_at"]) == ("revoked", messages[0].at)


async def test_a_token_of_long_ago_is_known_again(live: Live, clock: Clock) -> None:
    worker_id, first = await enrolled(live)
    token = first
    for _ in range(5):
        clock.ahead_ms += 2_000_000
        token = await rotated(live, token)
        assert (await use(live, worker_id, token)).status_code == 200
    clock.ahead_ms += known.OVERLAP_MS
    problem(await use(live, worker_id, first), 401, "worker_revoked")
    problem(await use(live, worker_id, token), 401, "worker_revoked")


async def test_an_answer_that_was_lost_harms_nobody(live: Live, clock: Clock) -> None:
    worker_id, old = await enrolled(live)
    await rotated(live, old)  # its answer was lost
    clock.ahead_ms = known.IN_FLIGHT_MS + 1
    assert (await use(live, worker_id, old)).status_code == 200
    new = await rotated(live, old)
    for _ in range(2):
        assert (await use(live, worker_id, new)).status_code == 200


async def test_the_answer_that_was_lost_and_found_by_another_is_a_theft(live: Live, clock: Clock) -> None:
    worker_id, old = await enrolled(live)
    stolen_token = await rotated(live, old)
    new = await rotated(live, old)
    assert (await use(live, worker_id, new)).status_code == 200
    clock.ahead_ms = known.IN_FLIGHT_MS + 1
    problem(await use(live, worker_id, stolen_token), 401, "worker_revoked")
    problem(await use(live, worker_id, new), 401, "worker_revoked")


async def test_a_request_that_was_on_its_way_is_refused_and_no_more(live: Live, clock: Clock) -> None:
    worker_id, old = await enrolled(live)
    new = await rotated(live, old)
    assert (await use(live, worker_id, new)).status_code == 200
    problem(await use(live, worker_id, old), 401, "unauthorized")
    assert (await use(live, worker_id, new)).status_code == 200


async def test_a_text_that_only_looks_like_an_old_token_revokes_nobody(live: Live, clock: Clock) -> None:
    worker_id, old = await enrolled(live)
    new = await rotated(live, old)
    assert (await use(live, worker_id, new)).status_code == 200
    clock.ahead_ms = known.IN_FLIGHT_MS + 1
    guess = new_key(known.WORKER_HEAD, worker_id[-FIND:])
    problem(await use(live, worker_id, guess), 401, "unauthorized")
    assert (await use(live, worker_id, new)).status_code == 200


async def test_many_first_uses_at_once_are_one(live: Live, clock: Clock) -> None:
    worker_id, old = await enrolled(live)
    new = await rotated(live, old)
    answers = await asyncio.gather(*(use(live, worker_id, new) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {200}


async def test_processes_that_share_a_file_use_no_old_token(live: Live, clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(await invited(live))
    remote = RemoteOptions(live.url, token_file=file)
    one, other = Credentials(remote, "w"), Credentials(remote, "w")
    callers = [Caller(live.url, credentials, lambda: None) for credentials in (one, other)]
    try:
        await one.begin(callers[0])
        await other.begin(callers[1])  # it rotates what it found in the file
        for caller in callers:
            await caller.call("claim", CLAIM)
        async with one._alone():
            await one._rotate(callers[0])
        await callers[0].call("claim", CLAIM)
        clock.ahead_ms = known.IN_FLIGHT_MS + 1
        await callers[1].call("claim", CLAIM)  # it looks at the file before it asks
    finally:
        for caller in callers:
            await caller.close()


async def test_a_new_token_is_in_the_file_before_it_is_used(tmp_path: Path) -> None:
    file, seen = tmp_path / "token", list[str]()
    file.write_text("cs_worker_old")
    credentials = Credentials(RemoteOptions("http://127.0.0.1:1", token_file=file), "w")

    def fate(_: Asked) -> Fate:
        body = b'{"worker_id": "w", "worker_token": "cs_worker_new", "rotate_after_seconds": 60}'
        return Fate(instead=Answered(200, {"content-type": "application/json"}, body))

    original = Path.replace

    def replace(self: Path, target: Path) -> Path:
        seen.append(credentials.token)
        return original(self, target)

    async with FaultProxy.before("http://127.0.0.1:1", fate) as proxy:
        caller = Caller(proxy.url, credentials, lambda: None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            await credentials.begin(caller)
        await caller.close()
    assert (seen, credentials.token) == (["cs_worker_old"], "cs_worker_new")
