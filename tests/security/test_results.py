"""A worker writes the result: it opens no object of another tenant, and breaks no route."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callsheet.engine.ids import new_id
from callsheet.kernel import commands
from callsheet.kernel.job import NewJob
from callsheet.store.protocol import ClaimRequest, Settled
from tests.security.estate import STRANGER, Town, town

ODD: list[Any] = [None, 1, "x", [], {}, {"outputs": None}, {"outputs": "x"}, {"outputs": [1, None]}, {"outputs": [{}]}]
ODD += [{"outputs": [{"location": place}]} for place in ("", "object:", "object:../x", "s3://x", 5, "object:a\u0000b")]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Town]:
    async with town("sqlite", tmp_path) as here:
        yield here


async def outputs_of(here: Town, result: Any) -> list[dict[str, Any]]:
    """Return the outputs that a stranger sees for its own job with this result."""
    payload = {"source": "https://example.org/a", "output": "object:x", "outputs": [{"format": "mp3"}]}
    new = NewJob(new_id(), "transcode", json.dumps(payload), "odd", requester_id=STRANGER, contract="euterpe")
    await here.live.engine.enqueue([new])
    (job,) = await here.live.engine.claim(ClaimRequest("w", ("odd",), 1, 600_000))
    for stage in ("fetching", "processing", "uploading"):
        await here.live.engine.settle([commands.advance(job, stage)])
        job = job._replace(stage=stage)
    assert await here.live.engine.settle([commands.succeed(job, json.dumps(result))]) == [Settled.APPLIED]
    async with await here.live.key(STRANGER) as stranger:
        answer = await stranger.get(f"/transcode/status?job_id={new.job_id}")
    assert answer.status_code == 200, answer.text
    outputs: list[dict[str, Any]] = answer.json()["outputs"]
    return outputs


async def test_a_result_that_names_a_strangers_object_opens_nothing(here: Town) -> None:
    keys = [
        here.estate.upload_key,
        "outputs/acme/x",
        f"jobs/{here.estate.done_id}/1/out.txt",
        f"frames/{here.estate.video_id}",
    ]
    outputs = await outputs_of(here, {"outputs": [{"location": f"object:{key}"} for key in keys]})
    assert [output["url"] for output in outputs] == [None] * len(keys)
    (own,) = await outputs_of(here, {"outputs": [{"location": f"object:outputs/{STRANGER}/x"}]})
    assert own["url"].startswith("/objects/")


@pytest.mark.parametrize("result", ODD, ids=str)
async def test_an_odd_result_can_be_read(here: Town, result: Any) -> None:
    assert all(output["url"] is None for output in await outputs_of(here, result))
