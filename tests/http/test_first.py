from __future__ import annotations

import asyncio

from callsheet.kernel import commands
from callsheet.store.protocol import ClaimRequest
from tests.http.live import Live, frames
from tests.time_limits import within


async def test_a_job_is_created_read_and_followed(live: Live) -> None:
    job_id = await live.job(ttl_s=60)
    body = (await live.client.get(f"/v1/jobs/{job_id}")).json()
    assert (body["status"], body["payload"], body["ttl_s"]) == ("queued", {"prompt": "hi"}, 60)
    seen = []
    async with live.client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for frame in frames(answer):
            seen.append(frame.event)
            if frame.event == "queued":
                (job,) = await live.engine.claim(ClaimRequest("w"))
                await live.engine.settle([commands.succeed(job, '{"text":"hello"}')])
    assert seen == ["hello", "queued", "running", "done"]
    body = (await live.client.get(f"/v1/jobs/{job_id}")).json()
    assert (body["status"], body["result"]) == ("done", {"text": "hello"})
    again = await live.client.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": body["last_event_id"]})
    assert again.status_code == 204


async def test_shutdown_with_open_streams_is_quick(live: Live) -> None:
    job_id = await live.job()
    async with live.client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        live.server.config.timeout_graceful_shutdown = 3600  # for those who do not end by themselves
        live.server.should_exit = True
        async with asyncio.timeout(within(2)):
            async for _ in lines:
                pass
