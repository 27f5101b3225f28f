from __future__ import annotations

import json

import pytest

from callsheet.engine import Engine
from callsheet.kernel import commands
from callsheet.outbox import Endpoints
from callsheet.outbox.endpoints import job_event
from callsheet.receiver import Receiver
from callsheet.store.protocol import ClaimRequest, Settled
from tests.outbox.kit import delivering, until
from tests.outbox.sink import Sink
from tests.store_driver import new_job


async def test_a_move_and_its_event_are_one_and_the_event_knows_its_place(
    engine: Engine, endpoints: Endpoints, sink: Sink
) -> None:
    _, secret = await endpoints.new_own_secret("acme")
    await engine.enqueue([new_job(requester_id="acme")])
    (job,) = await engine.claim(ClaimRequest("w"))
    event = job_event(job, sink.url, "job.succeeded", {"outputs": ["a.mp4"]})
    assert await engine.settle([commands.succeed(job, outbox=(event,))]) == [Settled.APPLIED]
    assert await engine.settle([commands.succeed(job, outbox=(job_event(job, sink.url, "x", {}),))]) == [
        Settled.REPEATED
    ]
    async with delivering(engine, endpoints):
        await until(engine, [event.event_id], "delivered")
    (request,) = sink.got
    body = Receiver([secret]).verify(request.headers, request.body).body
    assert body == json.loads(event.body)
    assert body["sequence"] == (await engine.get(job.job_id)).event_seq
    assert (body["type"], body["outputs"], body["job_id"]) == ("job.succeeded", ["a.mp4"], job.job_id)
    with pytest.raises(ValueError, match="event_id"):
        job_event(job, sink.url, "x", {"event_id": "mine"})
