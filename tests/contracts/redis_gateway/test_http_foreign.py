"""The gateway's streams of jobs that foreign workers run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.live import serving

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
