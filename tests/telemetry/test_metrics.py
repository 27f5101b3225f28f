from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from callsheet import Callsheet
from callsheet.engine import depths, telemetry
from callsheet.kernel import commands
from callsheet.kernel.errors import JobFailed, StoreUnavailable
from callsheet.store.protocol import ClaimRequest, JobQuery, Settled
from callsheet.worker.health import Health
from tests.running_worker import until
from tests.store_driver import new_job
from tests.telemetry.conftest import Samples, ask, scrape, value, working

ENDED, FACTS = "callsheet_jobs_ended_total", "callsheet_facts_total"
ATTEMPTS = "callsheet_attempt_duration_seconds_count"
ALONE = ATTEMPTS.replace("_seconds", "_alone_seconds")


@pytest.fixture
def sampled_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depths, "SAMPLE_S", 0.0)


async def scrape_until(health: Health, fact: Callable[[Samples], Any]) -> Samples:
    async with asyncio.timeout(60):
        while not fact(samples := await scrape(health)):
            await asyncio.sleep(0.05)
    return samples


@pytest.mark.usefixtures("sampled_always")
async def test_queues_tell_their_depth_and_age(app: Callsheet) -> None:
    release = asyncio.Event()

    @app.task
    async def wait() -> None:
        await release.wait()

    engine = await app.engine()
    now = await engine.store.now()
    await engine.enqueue([new_job(queue="unserved"), new_job(queue="unserved")], now=now - 60_000)
    await engine.enqueue([new_job(queue="unserved", delay_ms=3_600_000)])
    async with working(app, concurrency=2) as (worker, health):
        for _ in range(3):
            await wait.enqueue()
        samples = await scrape_until(
            health, lambda s: value(s, "callsheet_worker_slots_busy", worker=name(worker)) == 2
        )
        depth = {
            (queue, state): value(samples, "callsheet_queue_depth", queue=queue, state=state)
            for queue in ("unserved", "default")
            for state in ("ready", "held", "running")
        }
        assert [depth["unserved", state] for state in ("ready", "held", "running")] == [2, 1, 0]
        assert depth["default", "ready"] + depth["default", "running"] == 3
        assert 60 <= value(samples, "callsheet_queue_oldest_age_seconds", queue="unserved") < 600
        release.set()
        samples = await scrape_until(
            health,
            lambda s: (
                value(s, "callsheet_queue_depth", queue="default", state="ready") == 0
                and value(s, "callsheet_queue_depth", queue="default", state="running") == 0
                and value(s, "callsheet_queue_oldest_age_seconds", queue="default") == 0
            ),
        )
        assert ("callsheet_queue_depth", frozenset({"queue": "default", "state": "ready"}.items())) in samples


async def test_a_worker_tells_its_slots_and_that_it_claims(app: Callsheet) -> None:
    @app.task
    async def nothing() -> None: ...

    async with working(app, concurrency=7) as (worker, health):
        samples = await scrape(health)
        own = {
            metric: labels["worker"]
            for metric, pairs in samples
            if "worker" in (labels := dict(pairs)) and labels["worker"] == name(worker)
        }
        assert own.keys() == {
            "callsheet_worker_slots",
            "callsheet_worker_slots_busy",
            "callsheet_worker_prefetched",
            "callsheet_worker_unsettled",
            "callsheet_worker_ready",
            "callsheet_worker_claim_age_seconds",
        }
        assert value(samples, "callsheet_worker_slots", worker=name(worker)) == 7
        assert value(samples, "callsheet_worker_ready", worker=name(worker)) == 1
        assert 0 <= value(samples, "callsheet_worker_claim_age_seconds", worker=name(worker)) < 3 * worker.poll_s
    async with working(app) as (_, health):
        assert not [labels for _, labels in await scrape(health) if ("worker", name(worker)) in labels]


async def test_ends_retries_and_dead_letters_are_counted(app: Callsheet) -> None:
    @app.task
    async def fine() -> None: ...

    @app.task(retry=[0.01])
    async def doomed() -> None:
        raise RuntimeError("no")

    async with working(app) as (_, health):
        before = await scrape(health)
        for job in [await fine.enqueue() for _ in range(5)]:
            await job.result(timeout=60)
        with pytest.raises(JobFailed):
            await (await doomed.enqueue()).result(timeout=60)
        after = await scrape_until(health, lambda s: sum(grown(before, s, ENDED, "outcome").values()) == 6)
    assert grown(before, after, ENDED, "outcome") == {"succeeded": 5, "dead_letter": 1}
    assert grown(before, after, FACTS, "fact") == {"retried": 1, "dead_letter": 1}


async def test_attempts_are_timed_by_task_and_outcome(app: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate instrument per test.

    The SDK keeps at most 2,000 label sets per instrument, and other tests may have filled it.
    """
    alone = telemetry._meter.create_histogram("callsheet.attempt.duration.alone", "s")
    monkeypatch.setattr(telemetry, "_attempts", alone)

    @app.task
    async def timed_frames() -> None: ...

    @app.task(retry=[0.01])
    async def timed_cut() -> None:
        raise RuntimeError("no")

    def counted(samples: Samples) -> dict[tuple[str, str], float]:
        results = [(dict(labels), number) for (name, labels), number in samples.items() if name == ALONE]
        mine = [(labels, number) for labels, number in results if labels["task"] in {"timed_frames", "timed_cut"}]
        return {(labels["task"], labels["outcome"]): number for labels, number in mine}

    async with working(app) as (_, health):
        await (await timed_frames.enqueue()).result(timeout=60)
        with pytest.raises(JobFailed):
            await (await timed_cut.enqueue()).result(timeout=60)
        after = await scrape_until(health, lambda s: len(counted(s)) == 3)
    assert counted(after) == {
        ("timed_frames", "succeeded"): 1,
        ("timed_cut", "retried"): 1,
        ("timed_cut", "dead_lettered"): 1,
    }


async def test_lease_losses_and_stale_claims_are_counted(app: Callsheet) -> None:
    @app.task
    async def nothing() -> None: ...

    engine = await app.engine()
    async with working(app) as (_, health):
        before = await scrape(health)
        await engine.enqueue([new_job(queue="unserved")])
        (job,) = await engine.claim(ClaimRequest("dies", ("unserved",), lease_ms=1))
        after = await scrape_until(health, lambda s: grown(before, s, FACTS, "fact"))
        assert grown(before, after, FACTS, "fact") == {"lease_lost": 1}
        assert await engine.settle([commands.succeed(job)]) == [Settled.STALE]
        after = await scrape(health)
        assert grown(before, after, FACTS, "fact") == {"lease_lost": 1, "stale_claim": 1}
        for name in ("callsheet_leases_lost_total", "callsheet_claims_stale_total"):  # as the old name counts
            assert value(after, name) == value(before, name) + 1


async def test_claims_and_settlements_are_timed_in_useful_buckets(app: Callsheet) -> None:
    @app.task
    async def fine() -> None: ...

    async with working(app) as (_, health):
        before = await scrape(health)
        await (await fine.enqueue()).result(timeout=60)
        after = await scrape(health)
    for verb in ("enqueue", "claim", "settle"):
        counts, took = (
            value(after, f"callsheet_verb_duration_seconds_{what}", verb=verb, error="")
            - value(before, f"callsheet_verb_duration_seconds_{what}", verb=verb, error="")
            for what in ("count", "sum")
        )
        assert counts >= 1
        assert 0 < took < 60 * counts
        buckets = {dict(k[1])["le"] for k in after if k[0].endswith("_bucket") and ("verb", verb) in k[1]}
        assert {"0.001", "0.1", "10.0", "+Inf"} <= buckets
    items = value(after, "callsheet_verb_items_total", verb="enqueue", error="")
    assert items == value(after, "callsheet_store_batch_size_sum", verb="enqueue", error="") >= 1


async def test_a_verb_that_fails_is_counted_with_its_error(app: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    async def nothing() -> None: ...

    async with working(app) as (worker, health):
        engine: Any = worker.engine
        before = await scrape(health)

        async def away(*args: Any, **more: Any) -> Any:
            raise StoreUnavailable("away")

        monkeypatch.setattr(engine.store, "find", away)
        with pytest.raises(StoreUnavailable):
            await engine.find(JobQuery())
        after = await scrape(health)
    labels = {"verb": "find", "error": "StoreUnavailable"}
    count = "callsheet_verb_duration_seconds_count"
    assert value(after, count, **labels) - value(before, count, **labels) == 1


async def test_the_store_is_asked_at_most_every_five_seconds(app: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert depths.SAMPLE_S == 5.0
    monkeypatch.setattr(depths, "SAMPLE_S", 60.0)  # ten scrapes may take longer than five seconds here

    @app.task
    async def nothing() -> None: ...

    async with working(app) as (worker, health):
        engine: Any = worker.engine
        requests, backlog = [], engine.backlog

        async def counted() -> Any:
            requests.append(1)
            return await backlog()

        engine.backlog = counted
        await asyncio.gather(*(scrape(health) for _ in range(10)))
        assert len(requests) == 1


@pytest.mark.usefixtures("sampled_always")
async def test_a_store_that_is_away_leaves_the_other_metrics(app: Callsheet) -> None:
    @app.task
    async def nothing() -> None: ...

    async with working(app) as (worker, health):
        engine: Any = worker.engine

        async def away() -> Any:
            raise StoreUnavailable("away")

        backlog, engine.backlog = engine.backlog, away
        samples = await scrape(health)
        assert not [metric for metric, _ in samples if metric.startswith("callsheet_queue")]
        assert value(samples, "callsheet_worker_slots", worker=name(worker)) > 0
        engine.backlog = backlog
        assert [metric for metric, _ in await scrape(health) if metric.startswith("callsheet_queue")]


async def test_scrapes_at_once_all_get_everything(app: Callsheet) -> None:
    @app.task
    async def nothing() -> None: ...

    async with working(app) as (worker, health):
        for reply in await asyncio.gather(*(ask(health, "/metrics") for _ in range(20))):
            assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert name(worker) in reply.body.decode()
        await until(lambda: not health._connections)


def name(worker: Any) -> str:
    result: str = worker.options.worker_id
    return result


def grown(before: Samples, after: Samples, metric: str, label: str) -> dict[str, float]:
    """Return the growth of each series of a counter, without zeros."""
    by_name: dict[str, float] = {}
    for (found_metric, labels), count in after.items():
        by = count - before.get((found_metric, labels), 0.0)
        if found_metric == metric and by:
            by_name[dict(labels)[label]] = by
    return by_name
