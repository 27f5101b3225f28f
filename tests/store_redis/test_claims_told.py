"""One script writes the claim and its callback, so nobody sees one without the other."""

from __future__ import annotations

import json

import pytest

from callsheet.store.protocol import ClaimRequest
from callsheet.store.redis import RedisStore
from tests import stores
from tests.store_driver import new_job

ASKED = json.dumps({"status_webhook_url": "https://hooks.example.org/transcode"})


@pytest.mark.parametrize("tenants", [None, frozenset({"acme"})])
async def test_the_script_that_claims_on_redis_tells_of_it(tenants: frozenset[str] | None) -> None:
    store = await stores.open_store(stores.fresh_url("redis"))
    assert isinstance(store, RedisStore)
    try:
        news = [new_job("transcode", payload=ASKED, contract="euterpe", requester_id="acme") for _ in range(3)]
        await store.enqueue([*news, new_job(payload=ASKED, requester_id="acme")])
        request = ClaimRequest("w", limit=10, tenants=tenants)
        jobs = await store._claim(request, None)  # not what comes after it for jobs of older versions
        body_of = {event.job_id: json.loads(event.body) for event in await store.outbox_find()}
        assert set(body_of) == {new.job_id for new in news} < {job.job_id for job in jobs}
        assert all(body["status"] == "claimed" for body in body_of.values())
    finally:
        await store.close()


async def test_a_claim_of_a_job_of_an_older_version_is_told_before_it_is_handed_out() -> None:
    store = await stores.open_store(stores.fresh_url("redis"))
    assert isinstance(store, RedisStore)
    try:
        new = new_job("transcode", payload=ASKED, contract="euterpe")
        await store.enqueue([new])
        await store._client.redis.hdel(store._keys.job(new.job_id), "on_claim")
        (job,) = await store.claim(ClaimRequest("w", limit=10))
        (event,) = await store.outbox_find(job_id=job.job_id)
        assert json.loads(event.body)["status"] == "claimed"
    finally:
        await store.close()
