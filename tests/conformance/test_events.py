from __future__ import annotations

import asyncio

import pytest

from callsheet.kernel import commands
from callsheet.kernel.job import NewEvent
from callsheet.store.protocol import Hint
from tests.kit import Kit


@pytest.mark.guarantee("S21")
async def test_events_resume_after_any_point(kit: Kit) -> None:
    job = await kit.running()
    for n in range(8):
        kit.later(3)
        await kit.settle(commands.note(job, NewEvent("log", "s", f'{{"n":{n}}}')))
    everything = await kit.events(job.job_id)
    assert [e.seq for e in everything] == list(range(1, 11))
    for after in range(12):
        assert await kit.events(job.job_id, after) == everything[after:]
    assert await kit.events(job.job_id, 2, limit=3) == everything[2:5]
    assert everything[9].data == '{"n":7}'


@pytest.mark.guarantee("S21")
async def test_many_jobs_are_read_at_once(kit: Kit) -> None:
    a, b, c = [await kit.running() for _ in range(3)]
    found = await kit.store.events({a.job_id: 1, b.job_id: 0, c.job_id: 2}, 10)
    by_job = {j.job_id: [e.seq for e in found if e.job_id == j.job_id] for j in (a, b, c)}
    assert by_job == {a.job_id: [2], b.job_id: [1, 2], c.job_id: []}
    assert await kit.store.events({}, 10) == []


@pytest.mark.guarantee("S21")
async def test_text_of_any_kind_survives(kit: Kit) -> None:
    data = '{"text":"CR\\r LF\\n \u2028 \U0001f3ac \\u0000 ü"}'
    job = await kit.running(payload=data)
    await kit.settle(commands.note(job, NewEvent("log", "étape 1", data)), commands.succeed(job, data))
    after = await kit.get(job.job_id)
    events = await kit.events(job.job_id)
    assert (after.payload, after.result) == (data, data)
    assert (events[2].data, events[2].step) == (data, "étape 1")


async def test_a_hint_follows_a_write(kit: Kit) -> None:
    hints = kit.store.hints()
    waiting = asyncio.ensure_future(anext(aiter(hints)))
    await asyncio.sleep(0.05)
    job_id = await kit.add(queue="q")
    hint = await asyncio.wait_for(waiting, 5)
    assert hint == Hint() or "q" in hint.queues or job_id in hint.jobs
    await hints.aclose()  # type: ignore[attr-defined]
