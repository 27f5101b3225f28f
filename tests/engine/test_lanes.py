"""Lanes: names, and the order in which a queue's lanes are asked for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet import Callsheet
from callsheet.engine.lanes import Lane, Lanes, lane_name, lane_of
from callsheet.kernel.errors import InvalidInput
from callsheet.store.protocol import Backlog

LABELS = st.lists(st.text("abcXYZ019_.-", min_size=1, max_size=8), max_size=4)


@given(queue=st.text("abc/ é:-", min_size=1, max_size=9), needs=LABELS, tenant=st.text(max_size=9))
def test_a_lane_has_the_parts_it_was_named_by(queue: str, needs: list[str], tenant: str) -> None:
    try:
        tenant.encode()
    except UnicodeEncodeError:
        return
    assert lane_of(lane_name(queue, needs, tenant)) == Lane(queue, frozenset(needs), tenant)


async def lanes_with(*names: str) -> Lanes:
    async def backlog() -> Mapping[str, Backlog]:
        return dict.fromkeys(names, Backlog(ready=1))

    return Lanes(backlog)


async def test_a_queue_is_asked_for_with_the_lanes_that_the_labels_fit() -> None:
    lanes = await lanes_with("media", "media+gpu", "media+gpu+av1", "other+gpu")
    assert await lanes.expand(["media"]) == ("media",)
    assert set(await lanes.expand(["media"], ["gpu"])) == {"media", "media+gpu"}
    assert await lanes.expand(["low", "media"], ["av1"]) == ("low", "media")


async def test_a_lane_that_was_served_comes_last_and_an_empty_one_is_forgotten() -> None:
    lanes = await lanes_with("m@a", "m@b", "m@c")
    first = await lanes.expand(["m"])
    assert first == ("m", "m@a", "m@b", "m@c")
    lanes.note_claim(first, {"m@a"}, short=False)
    assert await lanes.expand(["m"]) == ("m", "m@b", "m@c", "m@a")
    lanes.note_claim(await lanes.expand(["m"]), {"m@b"}, short=True)
    assert await lanes.expand(["m"]) == ("m", "m@b")
    assert lanes.note_work(["m@z"]) == {"m", "m@z"}
    assert await lanes.expand(["m"]) == ("m", "m@z", "m@b")


async def test_a_worker_for_some_tenants_asks_for_no_lane_of_another() -> None:
    lanes = await lanes_with("m", "m@a", "m@b", "m+gpu", "m+gpu@a", "m+gpu@b")
    mine = frozenset({"b", "x"})
    assert await lanes.expand(["m"], tenants=mine) == ("m", "m@b")
    request = await lanes.expand(["m"], ["gpu"], tenants=mine)
    assert request == ("m", "m+gpu", "m+gpu@b", "m@b")
    lanes.note_claim(request, set(), short=True, tenants=mine)
    assert await lanes.expand(["m"], ["gpu"]) == ("m", "m+gpu", "m+gpu@a", "m@a"), "others' jobs may be in m+gpu"


def test_a_task_that_needs_something_stands_in_its_lane() -> None:
    app = Callsheet("sqlite::memory:")

    @app.task(queue="media", needs=["gpu"])
    async def encode() -> None: ...

    @app.task
    async def plain() -> None: ...

    assert encode.new_job().queue == "media+gpu"
    assert plain.options(needs=["b", "a"]).new_job().queue == "default+a+b"
    with pytest.raises(InvalidInput, match="list of labels"):
        plain.options(needs=["no spaces"]).new_job()
