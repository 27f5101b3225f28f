"""A tenant names any queue; the output of `/metrics` stays bounded and well-formed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from callsheet.contracts.control_plane import routes
from callsheet.engine import depths
from callsheet.engine.depths import MOST_EVER, MOST_SHOWN, OTHER, Depths
from callsheet.store.protocol import Backlog
from tests import stores
from tests.http.conftest import postgres_url
from tests.http.live import Live, serving
from tests.store_driver import new_job

MANY = MOST_SHOWN + 30
ODD = ['x"} 99', "a\\", 'q"} 1 # HELP callsheet_jobs_ended_total', "{", "a,b=c", "ü", "#"]


@pytest.fixture(params=stores.THREE)
async def live(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    monkeypatch.setattr(depths, "SAMPLE_S", 0.0)
    url = postgres_url() if request.param == "postgres" else stores.fresh_url(request.param)
    async with serving(url, routers=[routes.router]) as live:
        await stores.empty({url: live.engine.store})
        yield live


async def ready_of(live: Live) -> dict[str, float]:
    """Return the number of ready jobs per label."""
    answer = await live.client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return {
        sample.labels["queue"]: sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name == "callsheet_queue_depth" and sample.labels["state"] == "ready"
    }


async def test_queues_that_a_tenant_invents_are_told_of_together(live: Live) -> None:
    live.engine.fair_queues = frozenset({"media"})
    await live.engine.enqueue([new_job(queue="big") for _ in range(3)])
    await live.engine.enqueue([new_job(queue=f"invented-{n}", requester_id="acme") for n in range(MANY)])
    depths = await ready_of(live)
    assert depths["big"] == 3, "the biggest have a label"
    assert depths["media"] == 0, "and so have those of the settings, however small"
    assert len(depths) == MOST_SHOWN + len(["media", OTHER])
    assert sum(depths.values()) == 3 + MANY, "no job is left out"
    assert depths[OTHER] == 3 + MANY - 3 - (MOST_SHOWN - 1)


async def test_a_queue_s_name_writes_nothing_into_the_page(live: Live) -> None:
    await live.engine.enqueue([new_job(queue=name, requester_id="acme") for name in ODD])
    depths = await ready_of(live)
    assert {name: depths[name] for name in ODD} == dict.fromkeys(ODD, 1)


async def test_an_empty_queue_keeps_its_zero_while_there_is_room() -> None:
    depths = Depths(lambda: None, ["own"])
    depths._show({"a": Backlog(1)}, frozenset({"own"}))
    depths._show({"b": Backlog(1)}, frozenset({"own"}))
    assert depths._labels == {"own", "a", "b"}
    depths._show({f"n{n}": Backlog(2) for n in range(MOST_SHOWN)}, frozenset({"own"}))
    assert len(depths._labels) == MOST_SHOWN + 1
    assert not depths._labels & {"a", "b"}


async def test_names_that_come_and_go_are_so_many_in_a_life() -> None:
    depths, seen = Depths(lambda: None, ["own"]), set[str]()
    for round_ in range(20):
        depths._show({f"{round_}-{n}": Backlog(round_ + 1) for n in range(MOST_SHOWN)}, frozenset({"own"}))
        seen |= depths._labels
    assert seen == {"own", OTHER} | {f"{r}-{n}" for r in range(MOST_EVER // MOST_SHOWN) for n in range(MOST_SHOWN)}
    assert 3 * len(seen) < 2_000, "the SDK would drop labels, also of the queues that are ours"
