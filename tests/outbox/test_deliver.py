from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest

from callsheet.engine import Engine
from callsheet.kernel.job import Delivery
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.net.guarded_client import GuardedClient
from callsheet.outbox import Deliveries, Endpoints
from callsheet.outbox.attempt import Attempted, Attempts
from callsheet.outbox.breaker import Destination
from callsheet.outbox.decide import Outcome, attempts_in, log_of
from callsheet.receiver import Receiver
from callsheet.store.protocol import Store
from callsheet.testing.clock import Clock, VirtualStore
from tests import stores
from tests.outbox.kit import add_events, delivering, event, until
from tests.outbox.kit import endpoints as endpoints_of
from tests.outbox.sink import QUICK, RULES, Sink, answer, silent
from tests.time_limits import within


async def test_an_event_arrives_signed_as_it_was_written(engine: Engine, endpoints: Endpoints, sink: Sink) -> None:
    _, secret = await endpoints.new_own_secret("acme")
    body = '{"event_id": "x",  "text":"é \\u2028"}'
    async with delivering(engine, endpoints):
        (event_id,) = await add_events(engine, sink.url, body=body)
        (request,) = await sink.until(1)
        (row,) = await until(engine, [event_id], "delivered")
    assert request.body == body.encode()
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert (request.headers["webhook-id"], request.headers["webhook-attempt"]) == (event_id, "1")
    assert row.attempt_count == 1
    assert log_of(row.error)["response"] == "ok"
    assert attempts_in(row.error)[0]["timing"] == "under_1s"
    Receiver([secret], check_event_id=False).verify(request.headers, request.body)


@pytest.mark.parametrize("kind", stores.THREE)
async def test_a_retry_has_the_same_id_and_bytes_and_a_nonce_of_its_own(kind: str, sink: Sink) -> None:
    sink.turns = [answer("503 Busy"), answer("500 No"), answer()]
    engine = Engine.from_url(stores.fresh_url(kind))
    await engine.store.migrate()
    async with engine:
        endpoint_registry = endpoints_of(engine.store)
        _, secret = await endpoint_registry.new_own_secret("acme")
        async with delivering(engine, endpoint_registry):
            (event_id,) = await add_events(engine, sink.url)
            for attempts in (1, 2):
                await sink.until(attempts)
                await _make_due(engine, event_id)
            (row,) = await until(engine, [event_id], "delivered")
    assert sink.ids() == [event_id] * 3
    assert len({request.body for request in sink.got}) == 1
    assert len({request.headers["x-euterpe-nonce"] for request in sink.got}) == 3
    assert [request.headers["webhook-attempt"] for request in sink.got] == ["1", "2", "3"]
    assert [entry.get("status") for entry in attempts_in(row.error)] == [503, 500, 200]
    receiver = Receiver([secret])
    assert {receiver.verify(request.headers, request.body).event_id for request in sink.got} == {event_id}


async def _make_due(engine: Engine, event_id: str) -> None:
    """Bring a waiting retry forward, as time would."""
    await until(engine, [event_id], "pending")
    row = await event(engine, event_id)
    (mine,) = await engine.store.outbox_claim("test", limit=1, lease_ms=60_000, now=row.run_at)
    from callsheet.kernel.job import Delivery  # noqa: PLC0415
    from callsheet.kernel.settlement import OutboxSettlement  # noqa: PLC0415

    back = OutboxSettlement(event_id, mine.claim_version, Delivery.PENDING, counts=False)
    await engine.store.outbox_settle([back])


async def test_a_registered_endpoint_has_its_own_url_and_secret(
    engine: Engine, endpoints: Endpoints, sink: Sink
) -> None:
    endpoint, secret = await endpoints.create("acme", sink.url)
    async with delivering(engine, endpoints):
        ids = await add_events(engine, endpoint.endpoint_id)
        await until(engine, ids, "delivered")
    Receiver([secret]).verify(sink.got[0].headers, sink.got[0].body)


async def test_another_requesters_endpoint_gets_nothing(engine: Engine, endpoints: Endpoints, sink: Sink) -> None:
    endpoint, _ = await endpoints.create("acme", sink.url)
    async with delivering(engine, endpoints):
        ids = await add_events(engine, endpoint.endpoint_id, requester_id="mallory")
        (row,) = await until(engine, ids, "dead_letter")
    assert log_of(row.error)["reason"] == "endpoint_not_found"
    assert not sink.got


async def test_without_a_secret_nothing_goes_out(engine: Engine, endpoints: Endpoints, sink: Sink) -> None:
    async with delivering(engine, endpoints):
        (row,) = await until(engine, await add_events(engine, sink.url), "dead_letter")
    assert (log_of(row.error)["reason"], row.attempt_count, sink.got) == ("no_secret", 0, [])


async def test_both_secrets_sign_during_a_rotation_and_the_old_one_ends(
    engine: Engine, endpoints: Endpoints, sink: Sink
) -> None:
    endpoint, old = await endpoints.create("acme", sink.url)
    _, new = await endpoints.rotate(endpoint.endpoint_id, "acme")
    async with delivering(engine, endpoints):
        await until(engine, await add_events(engine, endpoint.endpoint_id), "delivered")
    request = sink.got[0]
    assert len(request.headers["x-euterpe-signature"].split(",")) == 2
    assert len(request.headers["webhook-signature"].split(" ")) == 2
    for secret in (old, new):
        Receiver([secret]).verify(request.headers, request.body)
    rotation = await endpoints.get(endpoint.endpoint_id, "acme")
    later = await engine.store.now() + 24 * 3_600_000 + 1
    assert [len(await endpoints.open(rotation, at)) for at in (later - 1000 * 60, later)] == [2, 1]
    gone, _ = await endpoints.rotate(endpoint.endpoint_id, "acme", overlap_ms=0)
    assert len(gone.good(await engine.store.now())) == 1


async def test_gone_disables_the_endpoint_at_once(engine: Engine, endpoints: Endpoints, sink: Sink) -> None:
    sink.turns = [answer("410 Gone")]
    endpoint, _ = await endpoints.create("acme", sink.url)
    async with delivering(engine, endpoints):
        (row,) = await until(engine, await add_events(engine, endpoint.endpoint_id), "dead_letter")
        assert log_of(row.error)["reason"] == "gone"
        async with asyncio.timeout(60):
            while (await endpoints.get(endpoint.endpoint_id, "acme")).disabled_at is None:
                await asyncio.sleep(0.01)
        (second,) = await until(engine, await add_events(engine, endpoint.endpoint_id), "dead_letter")
    assert (log_of(second.error)["reason"], second.attempt_count) == ("endpoint_disabled", 0)
    assert (await endpoints.get(endpoint.endpoint_id, "acme")).disabled_reason == "gone"
    assert len(sink.got) == 1


async def test_too_many_requests_wait_as_long_as_they_are_told(
    engine: Engine, endpoints: Endpoints, sink: Sink
) -> None:
    sink.turns = [answer("429 Slow Down", Retry_After="3600")]
    await endpoints.new_own_secret("acme")
    async with delivering(engine, endpoints):
        ids = await add_events(engine, sink.url)
        await sink.until(1)
        (row,) = await until(engine, ids, "pending")
    assert row.run_at - await engine.store.now() > 3_590_000


async def test_a_redirect_is_not_followed(engine: Engine, endpoints: Endpoints, sink: Sink) -> None:
    async with Sink() as elsewhere:
        sink.turns = [answer("302 Found", Location=elsewhere.url), answer("307 X", Location="http://169.254.169.254/")]
        await endpoints.new_own_secret("acme")
        async with delivering(engine, endpoints):
            ids = await add_events(engine, sink.url, sink.url)
            await sink.until(2)
            rows = await until(engine, ids, "pending")
        assert elsewhere.connections == 0
    assert sorted(attempts_in(row.error)[0]["status"] for row in rows) == [302, 307]


async def test_two_deliverers_share_the_work_and_double_nothing(
    engine: Engine, endpoints: Endpoints, sink: Sink
) -> None:
    await endpoints.new_own_secret("acme")
    ids = await add_events(engine, *[sink.url] * 60)
    async with delivering(engine, endpoints), delivering(engine, endpoints):
        await until(engine, ids, "delivered")
    assert sorted(sink.ids()) == sorted(ids)


async def test_a_stop_hands_back_what_it_cuts_off(engine: Engine, endpoints: Endpoints, sink: Sink) -> None:
    sink.turns = [silent]
    await endpoints.new_own_secret("acme")
    async with (
        asyncio.timeout(within(3)),
        delivering(engine, endpoints, drain_s=0.1, limits=QUICK._replace(deadline_s=3600)),
    ):
        (event_id,) = await add_events(engine, sink.url)
        await sink.until(1)
    row = await event(engine, event_id)
    assert (row.status.value, row.attempt_count, row.lease_expires_at) == ("pending", 0, None)


async def test_a_slow_attempt_keeps_its_lease(engine: Engine, endpoints: Endpoints, sink: Sink) -> None:
    gate = asyncio.Event()

    async def slow(*args: object) -> None:
        await gate.wait()
        await answer()(*args)  # type: ignore[arg-type]

    sink.turns = [slow]
    await endpoints.new_own_secret("acme")
    async with delivering(engine, endpoints, lease_ms=9_000, limits=QUICK._replace(deadline_s=3600)):
        (event_id,) = await add_events(engine, sink.url)
        await sink.until(1)
        first = (await event(engine, event_id)).lease_expires_at or 0
        async with asyncio.timeout(60):
            while ((await event(engine, event_id)).lease_expires_at or 0) <= first + 500:  # and has moved on
                await asyncio.sleep(0.02)
        gate.set()
        (row,) = await until(engine, [event_id], "delivered")
    assert (len(sink.got), row.claim_version) == (1, 1)


async def test_a_step_forward_takes_no_delivery_from_a_living_deliverer(
    engine: Engine, endpoints: Endpoints, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callsheet.engine.clock.steady_ms", lambda: 0)
    gate, clock = asyncio.Event(), Clock()
    virtual = Engine(cast("Store", VirtualStore(engine.store, clock)))

    async def slow(*args: object) -> None:
        await gate.wait()
        await answer()(*args)  # type: ignore[arg-type]

    sink.turns = [slow, answer()]
    await endpoints.new_own_secret("acme")
    more = {"limits": QUICK._replace(deadline_s=3600)}
    async with delivering(virtual, endpoints, **more) as one, delivering(virtual, endpoints, **more) as other:
        (event_id,) = await add_events(virtual, sink.url)
        await sink.until(1)
        clock.move("6h")
        await asyncio.gather(one._claim(), other._claim())
        row = await event(engine, event_id)
        assert (row.claim_version, row.attempt_count) == (1, 0)
        gate.set()
        await until(engine, [event_id], "delivered")
    assert len(sink.got) == 1


async def test_a_clock_that_is_days_ahead_disables_no_endpoint(
    engine: Engine, endpoints: Endpoints, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady, clock = [0], Clock()
    monkeypatch.setattr("callsheet.engine.clock.steady_ms", lambda: steady[0])
    virtual = Engine(cast("Store", VirtualStore(engine.store, clock)))
    endpoint, _ = await endpoints.create("acme", sink.url)
    deliveries, where = Deliveries(virtual, endpoints), Destination("acme", endpoint.endpoint_id)
    failed = Attempted(OutboxSettlement("e", 1, Delivery.PENDING), Outcome(503), endpoint)

    async def fail() -> bool:
        await deliveries._claim()
        await deliveries._judge(where, failed)
        return (await endpoints.get(endpoint.endpoint_id, "acme")).disabled_at is not None

    assert not await fail()
    clock.move("6d")
    assert not await fail()
    for _ in range(6):  # and then six days pass
        clock.move("1d")
        steady[0] += 86_400_000
        is_disabled = await fail()
    assert is_disabled


async def test_keys_that_cannot_be_opened_postpone_and_spend_nothing(engine: Engine, sink: Sink) -> None:
    await endpoints_of(engine.store).new_own_secret("acme")
    other = endpoints_of(engine.store)  # another keyring
    (event_id,) = await add_events(engine, sink.url)
    attempt = await Attempts(other, GuardedClient(RULES)).make(await event(engine, event_id))
    assert (attempt.outcome, attempt.settlement.counts, attempt.settlement.delay_ms) == (None, False, 5_000)


async def test_secrets_are_in_no_document_in_the_clear(engine: Engine, endpoints: Endpoints, sink: Sink) -> None:
    endpoint, secret = await endpoints.create("acme", sink.url)
    _, own = await endpoints.new_own_secret("acme")
    documents = json.dumps([d.body for d in await engine.store.documents("webhook_endpoint")])
    for text in (secret, own):
        assert text.removeprefix("whsec_") not in documents
    assert secret not in repr(endpoint)
