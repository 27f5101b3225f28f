"""Words of a worker or task about a job never count as the system's own, and never break a reader."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet import Callsheet, Context
from callsheet.contracts.control_plane import files, logs, routes
from callsheet.engine.depths import without_tenants
from callsheet.kernel import commands
from callsheet.kernel.errors import IllegalMove, InvalidInput
from callsheet.kernel.events import MOVES, OWN_EVENTS, check_own
from callsheet.kernel.job import Event, NewEvent
from callsheet.store.protocol import Backlog
from tests import stores
from tests.contracts.control_plane.remote import Remote, add
from tests.http.conftest import postgres_url
from tests.http.live import Live, serving
from tests.kernel.jobs import a_job
from tests.store_driver import new_job

ODD: list[Any] = [
    "text", 5, [1], {}, {"attempt": 1}, {"attempt": 1, "offset": 0}, {"attempt": 1, "text": "x"},
    {"attempt": 1, "offset": -5, "text": "x"}, {"attempt": 1, "offset": "0", "text": "x"},
    {"attempt": 1, "offset": 10**30, "text": "x"}, {"attempt": 1, "offset": 0.5, "text": "x"},
    {"attempt": 1, "offset": True, "text": "x"}, {"attempt": 1, "offset": [0], "text": "x"},
    {"attempt": 1, "offset": 0, "text": {"a": [[]]}}, {"attempt": 1, "offset": 0, "text": None},
    {"attempt": "1", "offset": 0, "text": "x"}, {"attempt": [1], "offset": 0, "text": "x"},
]  # fmt: skip


@pytest.fixture(params=stores.THREE)
async def live(request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    url = postgres_url() if request.param == "postgres" else stores.fresh_url(request.param)
    async with serving(url, routers=[routes.router, files.router, files.worker_router]) as live:
        await stores.empty({url: live.engine.store})
        yield live


async def test_a_log_is_readable_whatever_events_of_that_type_hold(live: Live) -> None:
    job_id = await add(live)
    worker = Remote(live)
    claim = await worker.claim()
    job = await live.engine.get(job_id)
    for data in [*map(json.dumps, ODD), "[" * 3_000 + "]" * 3_000]:  # from a task of earlier days
        await live.engine.settle([commands.note(job, NewEvent("log", "", data))])
    for text in ("one\n", "two\n"):
        assert (
            await worker.say("heartbeat", claim, log={"offset": 4 * (text == "two\n"), "text": text})
        ).status_code == 200
    answer = await live.client.get(f"/v1/jobs/{job_id}/log")
    assert (answer.status_code, answer.text) == (200, "one\ntwo\n")


@given(data=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["attempt", "offset", "text"]), inner),
))  # fmt: skip
def test_no_event_is_too_odd_to_be_looked_at(data: Any) -> None:
    piece = logs._piece(Event("j", 1, 0, "log", "", 0.0, json.dumps(data)), 1)
    assert piece is None or (piece.offset >= 0 and isinstance(piece.text, str))


async def test_a_worker_cannot_tell_a_move_that_it_does_not_make(live: Live) -> None:
    job_id = await add(live)
    claim = await Remote(live).claim()
    data: tuple[Any, ...] = ({}, {"attempt": 1, "offset": 0, "text": "x"}, {"message": "m", "offset": 0}, "text")
    forgeries = [(kind, odd) for kind in sorted(OWN_EVENTS) for odd in data]
    answers = await Remote(live).move(*((claim, {"do": "event", "type": kind, "data": odd}) for kind, odd in forgeries))
    for (kind, _), answer in zip(forgeries, answers, strict=True):
        assert (answer["ok"], answer["code"]) == (False, "invalid_input"), answer
        assert kind in answer["detail"]
    assert (await live.engine.get(job_id)).event_seq == 2


@pytest.mark.parametrize(
    "kind",
    ["succeeded", "failed", "dead_letter", "dead_lettered", "retried", "cancelled", "completed", "dlq", "processing",
     "queued", "checkpoint", "lease_lost", "cancel_requested", "Succeeded", "job.failed", "Job.Done"],
)  # fmt: skip
def test_every_word_for_a_move_is_the_system_s_own(kind: str) -> None:
    with pytest.raises(InvalidInput, match=f"type: '{kind}'"):
        check_own(kind)


@pytest.mark.parametrize("kind", ["token", "restart", "warning", "frame.read", "done.frames", "my_failed", "logs"])
def test_other_names_are_a_task_s_to_choose(kind: str) -> None:
    check_own(kind)


async def test_a_task_s_line_is_still_an_event_of_its_log(live: Live) -> None:
    await add(live)
    claim = await Remote(live).claim()
    line = {"level": "info", "message": "half way", "frame": 12}
    (answer,) = await Remote(live).move((claim, {"do": "event", "type": "log", "data": line}))
    assert answer["ok"]
    assert (await live.client.get(f"/v1/jobs/{claim['job_id']}/log")).text == ""


async def test_a_task_cannot_emit_a_move() -> None:
    app, refusals = Callsheet("sqlite::memory:"), list[str]()

    @app.task
    async def forge(ctx: Context) -> None:
        for kind in sorted(OWN_EVENTS):
            try:
                await ctx.emit(kind, reason="forged")
            except InvalidInput as error:
                refusals.append(kind)
                assert kind in str(error)  # noqa: PT017
        await ctx.log("a line")
        await ctx.emit("token", text="t")

    async with await app.engine() as engine:
        await engine.store.migrate()
        job = await forge.enqueue()
        await app.worker().run(burst=True)
        types = [event.type for event in await engine.store.events({job.job_id: 0}, 100)]
    assert refusals == sorted(OWN_EVENTS)
    assert types == ["queued", "running", "log", "token", "done"]


@pytest.mark.parametrize("kind", sorted(MOVES))
def test_no_note_is_a_move(kind: str) -> None:
    with pytest.raises(IllegalMove):
        commands.note(a_job(), NewEvent(kind))


async def test_metrics_name_no_tenant(live: Live) -> None:
    live.engine.fair_queues = frozenset({"media"})
    for requester_id in ("acme", "victim", "victim"):
        await live.engine.enqueue([new_job(requester_id=requester_id, queue="media")])
    await live.engine.enqueue([new_job(requester_id="acme", queue="media+gpu@acme")])
    async with await live.key("acme") as tenant:
        forwarded = {"X-Forwarded-For": "203.0.113.5"}
        answer = await tenant.get("/metrics", headers=forwarded)
    assert answer.status_code == 200
    assert "victim" not in answer.text
    assert "@" not in "".join(line for line in answer.text.splitlines() if line.startswith("callsheet_queue"))
    assert 'queue="media",state="ready"} 3.0' in answer.text
    assert 'queue="media+gpu",state="ready"} 1.0' in answer.text


def test_the_lanes_of_tenants_are_counted_together() -> None:
    result = without_tenants({"q@a": Backlog(1, 2, 3, 10), "q": Backlog(1, 0, 0, None), "q@b": Backlog(0, 0, 1, 30)})
    assert result == {"q": Backlog(2, 2, 4, 30)}
    assert without_tenants({"@odd": Backlog(1)}) == {"@odd": Backlog(1)}
