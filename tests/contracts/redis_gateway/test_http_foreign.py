"""The gateway's streams of jobs that foreign workers run."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.http.live import Frame, Live, frames, serving

from . import KINDS, LANGUAGES, Language, add_event, foreign_worker, fresh_url, plain_client, take
from .test_http import followed


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_shows_a_foreign_workers_events_to_their_end(kind: str, language: Language) -> None:
    url = fresh_url(kind)
    async with serving(url) as live:
        job_id = await live.job()
        with foreign_worker(language, url):
            assert [f.event for f in await followed(live, job_id)] == ["hello", "queued", "running", "done"]
        body = (await live.client.get(f"/v1/jobs/{job_id}")).json()
        assert body["status"] == "done"
        assert body["result"]["worker"] == "stranger"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reader_of_a_foreign_workers_job_comes_back_and_misses_nothing(kind: str) -> None:
    url = fresh_url(kind)
    async with serving(url) as live, plain_client(url) as client:
        job_id = await live.job()
        message_id, _ = await take(client)
        for word in ("running", "done"):
            await client.hset(f"job:{job_id}", "status", word)
            await add_event(client, job_id, word)
        await client.xack("jobs:stream", "workers", message_id)
        _, *events = await followed(live, job_id)
        assert [f.event for f in events] == ["queued", "running", "done"]
        for place in range(2):
            hello, *rest = await followed(live, job_id, events[place].id)
            assert hello.event == "hello"
            assert [f.event for f in rest] == ["queued", "running", "done"][place + 1 :]
        over: Any = await live.client.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": events[-1].id})
        assert over.status_code == 204


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_goes_on_after_the_raw_id_of_a_foreign_event(kind: str) -> None:
    """`last_id` is what `XREAD` takes: a client that reads Redis beside us knows no other ids."""
    url = fresh_url(kind)
    async with serving(url) as live, plain_client(url) as client:
        job_id = await live.job()
        key = f"job:{job_id}:events"
        ((last, _),) = await client.xrevrange(key, count=1)
        ms = int(last.partition("-")[0]) + 1_000
        event = {"type": "token", "ts": str(ms), "step": "w", "data": "{}"}
        raw = [await client.xadd(key, event, id=f"{ms + n // 3}-{n % 3}") for n in range(9)]
        raw.append(await client.xadd(key, {**event, "type": "done"}, id=f"{ms + 4}-0"))
        await client.hset(f"job:{job_id}", "status", "done")
        for place, raw_id in enumerate(raw[:-1]):
            frames = await followed_from(live, job_id, last_id=raw_id)
            assert frames[0].event == "hello"
            assert frames[-1].event == "done"
            seqs = [frame.data["seq"] for frame in frames[1:]]
            assert seqs == list(range(seqs[0], len(raw) + 2))
            assert seqs[0] <= place + 3, "nothing is left out"
            if raw_id.endswith("-0"):  # no id of ours looks like it
                assert seqs[0] == place + 3
        over = await live.client.get(f"/v1/jobs/{job_id}/events", params={"last_id": raw[-1]})
        assert over.status_code == 204
        for unknown in (f"{ms}-9", f"{ms + 9}-0", "1-0"):
            (reset,) = await followed_from(live, job_id, last_id=unknown)
            assert reset.event == "reset"


@pytest.mark.parametrize("kind", KINDS)
async def test_the_present_is_the_last_id_that_xread_calls_so(kind: str) -> None:
    url = fresh_url(kind)
    async with serving(url) as live:
        job = await live.running()
        async with live.client.stream("GET", f"/v1/jobs/{job.job_id}/events", params={"last_id": "$"}) as answer:
            stream = frames(answer)
            assert (await anext(stream)).event == "hello"
            await live.done(job)
            assert [frame.event async for frame in stream] == ["done"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_foreign_job_with_an_upper_case_id_can_be_read(kind: str) -> None:
    url = fresh_url(kind)
    async with serving(url) as live, plain_client(url) as client:
        job_id = str(uuid.uuid4()).upper()
        await client.hset(f"job:{job_id}", mapping={"job_id": job_id, "task": "chat", "status": "done", "result": "7"})
        await add_event(client, job_id, "done")
        assert (await live.client.get(f"/v1/jobs/{job_id}")).json()["result"] == 7
        assert [frame.event for frame in await followed(live, job_id)] == ["hello", "done"]


async def followed_from(live: Live, job_id: str, **params: str) -> list[Frame]:
    """All frames of a stream that ends."""
    async with live.client.stream("GET", f"/v1/jobs/{job_id}/events", params=params) as answer:
        return [frame async for frame in frames(answer)]
