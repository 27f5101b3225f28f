"""live.js: the contract's backoff, its monotonic progress, and a cut stream that resumes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator

import pytest

from callsheet.contracts.aura import routes
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewEvent
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.client.proxy import anywhere, before
from tests.http.live import ADMIN, Live, serving

from .node import driven


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    async with serving(stores.fresh_url("sqlite"), routers=[routes.router]) as live:
        yield live


async def running(live: Live) -> Job:
    await live.client.post("/api/jobs", json={"payload": {}})
    (job,) = await live.engine.claim(ClaimRequest("w", lease_ms=600_000))
    return job


async def test_the_backoff_is_the_contracts(live: Live) -> None:
    async with driven(live.url, ADMIN) as node:
        assert (await node.ask("backoff", attempts=[1, 2, 3, 4, 5, 6, 9])).result == [
            1000,
            2000,
            4000,
            8000,
            16000,
            30000,
            30000,
        ]


async def test_a_message_is_of_its_stage(live: Live) -> None:
    report = {"step": "Voice", "phase": "tts", "progressPct": 35, "message": "scene 7 of 7"}
    completed = {"step": "Voice", "phase": "tts", "status": "completed"}
    started_job = {"step": "Visuals", "phase": "visuals", "status": "started"}
    events = [
        {"id": "", "type": name, "data": data}
        for name, data in (("step-progress", report), ("step-status", completed), ("step-status", started_job))
    ]
    async with driven(live.url, ADMIN) as node:
        assert (await node.ask("merge", events=events[:2])).result["message"] == "scene 7 of 7"
        state = (await node.ask("merge", events=events)).result
    assert (state["stage"], state["message"]) == ("Visuals", "")


async def test_progress_never_falls_in_the_page(live: Live) -> None:
    reports = list(range(0, 101, 4))
    random.Random(3).shuffle(reports)
    events = [
        {"id": "", "type": "step-progress", "data": {"step": "Rendering", "phase": "render", "progressPct": p}}
        for p in reports
    ]
    async with driven(live.url, ADMIN) as node:
        state = (await node.ask("merge", events=events)).result
    assert (state["percent"], state["stage"], state["phase"]) == (100, "Rendering", "render")
    assert state["rejected"] > 0


async def test_a_stream_that_is_cut_goes_on_where_it_was(live: Live) -> None:
    job = await running(live)
    async with before(live.url, anywhere(5, 4_000)) as proxy, driven(proxy.url, ADMIN) as node:
        following = asyncio.create_task(node.ask("live", job=job.job_id))
        n = 0
        while proxy.cuts < 20 and not following.done():
            n += 1
            note = NewEvent("warning", "Voice", json.dumps({"message": str(n)}))
            await live.engine.settle([commands.note(job, note)])
            await asyncio.sleep(0.005)
        await live.engine.settle([commands.progress(job, 88), commands.succeed(job, '{"video":1}')])
        proxy.budget = lambda: None
        proxy.cut_all()
        result = await asyncio.wait_for(following, 60)
    assert [e["data"]["message"] for e in result.events if e["type"] == "warning"] == [str(m) for m in range(1, n + 1)]
    assert len(set(result.ids)) == len(result.ids)
    state = result.result["state"]
    assert (state["status"], state["percent"], state["output"]) == ("Done", 100, {"video": 1})
    assert set(result.result["paused"]) <= {1000, 2000, 4000, 8000, 16000}


async def test_what_is_final_is_not_tried_again(live: Live) -> None:
    async with driven(live.url, ADMIN) as node:
        missing = await node.ask("live", job="0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1")
    assert missing.error is not None
    assert (missing.error["status"], missing.error["code"]) == (404, "job_not_found")
    async with driven("http://127.0.0.1:9", ADMIN) as node:
        away = await node.ask("live", job="0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1")
    assert away.error is not None
    assert away.error["code"] == "unreachable"
