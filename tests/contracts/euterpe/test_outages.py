"""A storage that goes away while jobs run: workers wait for the end of an outage without spending attempts."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from callsheet.kernel import commands
from callsheet.kernel.retry import Backoff
from tests import stores
from tests.media.corpus import Corpus
from tests.objects.front import fronting
from tests.running_worker import until
from tests.seaweed import ADMIN, BUCKET, REGION, s3_server

from .kit import MP3, Stack, keys_of, running

READS, WRITES = frozenset({"GET", "HEAD"}), frozenset({"PUT", "POST"})


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "OUTAGE_BACKOFF", Backoff(table_ms=(50,), low=1.0))


async def has_moved_on(stack: Stack, job_id: str) -> bool:
    """Whether the job waits, or has ended."""
    return await has_waited(stack, job_id) or (await stack.live.engine.get(job_id)).status.terminal


async def has_waited(stack: Stack, job_id: str) -> bool:
    return any(event.type == "waiting" for event in await stack.live.engine.store.events({job_id: 0}, 1000))


@pytest.mark.parametrize("away", [READS, WRITES], ids=["fetching", "uploading"])
@pytest.mark.parametrize("store", stores.THREE)
async def test_our_storage_is_waited_for(
    store: str, away: frozenset[str], tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fronting(s3_server().endpoint, lambda *_: None) as front:
        monkeypatch.setenv("S3_ENDPOINT", front.url)
        monkeypatch.setenv("S3_REGION", REGION)
        monkeypatch.setenv("S3_ACCESS_KEY_ID", ADMIN.access_key_id)
        monkeypatch.setenv("S3_SECRET_ACCESS_KEY", ADMIN.secret_access_key)
        place = f"s3://{BUCKET}/outage-{uuid.uuid4().hex[:12]}"
        async with running(stores.fresh_url(store), tmp_path, objects_url=place) as stack:
            source = await stack.own_source(corpus("sound.wav"))
            front.away = away
            job_id = await stack.post({"source": source, "outputs": [MP3], "max_attempts": 1})
            await until(lambda: has_moved_on(stack, job_id))
            assert await has_waited(stack, job_id)
            front.away = frozenset()
            status = await stack.ended(job_id, 120)
            assert status["status"] == "succeeded", status
            assert (await stack.live.engine.get(job_id)).attempt_count == 1


async def test_a_requesters_storage_that_does_not_answer_is_waited_for_and_its_503_counts(
    tmp_path: Path, corpus: Corpus
) -> None:
    prefix = f"job-{uuid.uuid4().hex[:12]}"
    own = s3_server().objects(ADMIN, prefix=prefix)
    await own.put_file("sound.wav", corpus("sound.wav"))
    await own.close()
    verdicts: list[tuple[int, str]] = []
    judge = lambda *_: verdicts.pop() if verdicts else None  # noqa: E731
    async with (
        fronting(s3_server().endpoint, judge) as front,
        running(stores.fresh_url("sqlite"), tmp_path) as stack,
    ):
        body = {
            "source": f"s3://{BUCKET}/{prefix}/sound.wav",
            "source_storage": {"endpoint": front.url},
            "outputs": [MP3],
            "credentials": {"source": keys_of(ADMIN)},
            "max_attempts": 1,
        }
        front.away = READS
        job_id = await stack.post(body)
        await until(lambda: has_moved_on(stack, job_id))
        assert await has_waited(stack, job_id)
        front.away = frozenset()
        assert (await stack.ended(job_id, 120))["status"] == "succeeded"
        verdicts += [(503, "ServiceUnavailable")] * 1_000  # the contract: a status is an error of the attempt
        job_id = await stack.post(body)
        await until(lambda: has_moved_on(stack, job_id))
        assert (await stack.status(job_id))["status"] == "dead_letter"
