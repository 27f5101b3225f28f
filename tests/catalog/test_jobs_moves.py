"""Workers that move jobs by SQL, as the contract writes them: each status change is a kernel move, or is refused."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from callsheet.catalog.records import SERVICE, VideoStatus
from callsheet.contracts.cortana.jobs import PIPELINE
from callsheet.engine import Engine
from callsheet.engine.housekeeping import Housekeeping
from callsheet.kernel import commands
from callsheet.kernel.job import Job, Status
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest, Settled
from tests.catalog.test_jobs_insert import Place, made_by_us, place

__all__ = ["place"]
POLL = (
    "SELECT * FROM jobs WHERE status = 'queued' AND job_type = $1"
    " ORDER BY created_at ASC LIMIT 1 FOR UPDATE SKIP LOCKED"
)
ERROR = {"type": "S3ObjectNotFound", "message": "not found", "timestamp": "2025-11-13T15:42:00Z", "retry_count": 2}
SAME = (
    "status", "stage", "held", "progress", "result", "claim_version", "lease_expires_at", "heartbeat_at",
    "attempt_count", "max_attempts", "lease_losses", "attempt_started_at", "blocked_by", "broken_by", "event_seq",
)  # fmt: skip


class Worker:
    """A session of the service role that knows nothing of Callsheet."""

    def __init__(self, session: Any, name: str | None = None) -> None:
        self.session, self.name = session, name

    async def claim(self, job_type: str = "transcode", until: str | None = None) -> Any:
        async with self.session.transaction():
            status_text = await self.session.fetchrow(POLL, job_type)
            if status_text is None:
                return None
            more = f", locked_until = {until}" if until else ""
            sql = f"UPDATE jobs SET status = 'processing', locked_by = $2{more} WHERE id = $1 RETURNING *"
            return await self.session.fetchrow(sql, status_text["id"], self.name)

    async def change(self, job_id: object, assignments: str, *values: object) -> str:
        row: str = await self.session.execute(f"UPDATE jobs SET {assignments} WHERE id = $1", job_id, *values)
        return row


@pytest.fixture
async def workers(place: Place) -> AsyncIterator[list[Worker]]:
    results = []
    for name in ("foreign-a", "foreign-b", None):
        session = await asyncpg.connect(place.catalog.target.dsn)  # type: ignore[attr-defined]
        await session.execute("SET ROLE service_role")
        results.append(Worker(session, name))
    yield results
    for worker in results:
        await worker.session.close()


async def queued(place: Place, job_type: str = "transcode") -> tuple[str, str]:
    video_id = await place.video()
    body = {"frame_paths": ["f"]} if job_type == "ocr" else {"t_start": 1500, "t_end": 3000}
    row = await place.insert(video_id, job_type, body if job_type in {"ocr", "clip_generate"} else None)
    return video_id, str(row["id"])


async def ours(place: Place) -> Job:
    """The same job, claimed by a worker of ours."""
    video_id = await place.video()
    await place.store.enqueue([made_by_us(video_id, "transcode")])
    (job,) = await place.store.claim(ClaimRequest("ours", limit=1))
    return job


def seen(job: Job) -> dict[str, Any]:
    values = {name: getattr(job, name) for name in SAME}
    return {name: value is not None if name.endswith("_at") else value for name, value in values.items()}


async def history(place: Place, job_id: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    events = await place.store.events({job_id: 0}, 50)
    attempts = await place.store.attempts(job_id)
    return [event.type for event in events], [(a.claim_version, a.attempt, a.outcome) for a in attempts]


MOVES = {
    "done": ["status = 'done'"],
    "failed": ["status = 'failed', payload = $2"],
    "retried": ["status = 'queued', retry_count = retry_count + 1, payload = $2"],
    "tried again": ["status = 'failed', payload = $2", "status = 'queued'"],
}


async def kernel_moves(place: Place, job: Job, move: str) -> None:
    error = JobError(ERROR["type"], "not found", retryable=False)  # type: ignore[arg-type]
    settlement = {
        "done": lambda: commands.succeed(job),
        "failed": lambda: commands.fail(job, error, rand=0.5),
        "retried": lambda: commands.retry(job, error, delay_ms=60_000),
        "tried again": lambda: commands.fail(job, error, rand=0.5),
    }[move]()
    assert await place.store.settle([settlement]) == [Settled.APPLIED]
    if move == "tried again":
        again = commands.requeue(await place.job(job.job_id))._replace(delay_ms=60_000)
        assert await place.store.settle([again]) == [Settled.APPLIED]


@pytest.mark.parametrize("move", MOVES)
async def test_a_move_by_sql_leaves_what_the_kernels_command_leaves(
    place: Place, workers: list[Worker], move: str
) -> None:
    known = await ours(place)
    _, job_id = await queued(place)
    claim = await workers[0].claim()
    assert (str(claim["id"]), claim["status"], claim["locked_by"]) == (job_id, "processing", "foreign-a")
    assert seen(await place.job(job_id)) == seen(await place.job(known.job_id))
    assert await history(place, job_id) == await history(place, known.job_id)
    await kernel_moves(place, known, move)
    payload = json.dumps({"error": ERROR, "original_payload": json.loads(claim["payload"])})
    for change in MOVES[move]:
        assert await workers[0].change(claim["id"], change, *([payload] if "$2" in change else [])) == "UPDATE 1"
    assert seen(await place.job(job_id)) == seen(await place.job(known.job_id))
    assert await history(place, job_id) == await history(place, known.job_id)


async def test_the_error_is_read_as_it_was_written(place: Place, workers: list[Worker]) -> None:
    video_id, job_id = await queued(place)
    claim = await workers[0].claim()
    original = json.loads(claim["payload"])
    await workers[0].change(job_id, "status = 'failed', payload = $2", json.dumps({"error": ERROR}))
    (row,) = await workers[0].session.fetch("SELECT * FROM jobs WHERE id = $1", job_id)
    assert (row["status"], json.loads(row["payload"])) == ("failed", {"error": ERROR, "original_payload": original})
    video = await place.catalog.video(video_id, SERVICE)
    assert video is not None
    assert video.status is VideoStatus.FAILED
    assert json.loads(video.error or "{}")["type"] == "S3ObjectNotFound"
    assert json.loads((await place.job(job_id)).error or "")["code"] == "S3ObjectNotFound"


async def test_each_done_starts_the_next_stage_and_the_last_makes_the_video_ready(
    place: Place, workers: list[Worker]
) -> None:
    video_id, _ = await queued(place)
    for stage in PIPELINE:
        claim = await workers[0].claim(stage)
        assert str(claim["video_id"]) == video_id, stage
        video = await place.catalog.video(video_id, SERVICE)
        assert video is not None
        assert json.loads(video.jobs)[stage] == str(claim["id"])
        await workers[0].change(claim["id"], "status = 'done'")
        (after,) = await place.store.get([str(claim["id"])])
        assert after is not None
        assert after.status is Status.SUCCEEDED
    rows = await workers[0].session.fetch(
        "SELECT job_type::text, status::text, payload FROM jobs ORDER BY created_at, id"
    )
    assert [(row[0], row[1]) for row in rows] == [(stage, "done") for stage in PIPELINE]
    assert json.loads(rows[1]["payload"])["target_fps"] == 10
    assert json.loads(rows[2]["payload"])["frame_paths"] == [f"frames/{video_id}/"]
    video = await place.catalog.video(video_id, SERVICE)
    assert video is not None
    assert video.status is VideoStatus.READY


@pytest.mark.parametrize("before", [True, False])
async def test_a_worker_may_make_the_next_job_itself(place: Place, workers: list[Worker], *, before: bool) -> None:
    """The contract's workers insert the next job before or after `done`.

    Exactly one job exists, with the worker's payload.
    """
    video_id, job_id = await queued(place, "sample")
    await workers[0].claim("sample")
    paths = [f"frames/{video_id}/{n}.jpg" for n in (0, 100)]
    insert = "INSERT INTO jobs (video_id, job_type, payload) VALUES ($1, 'ocr', $2) RETURNING id, payload"
    request = (uuid.UUID(video_id), json.dumps({"video_id": video_id, "frame_paths": paths}))
    if before:
        await workers[0].session.fetchrow(insert, *request)
    await workers[0].change(job_id, "status = 'done'")
    if not before:
        result = await workers[0].session.fetchrow(insert, *request)
        assert json.loads(result["payload"])["frame_paths"] == paths
    rows = await workers[0].session.fetch("SELECT payload FROM jobs WHERE job_type = 'ocr'")
    assert [json.loads(row["payload"])["frame_paths"] for row in rows] == [paths]
    if before:
        with pytest.raises(asyncpg.UniqueViolationError):
            await place.insert(video_id, "ocr", {"frame_paths": ["x"]})


async def test_what_a_worker_adds_to_the_payload_is_the_result_and_goes_on(place: Place, workers: list[Worker]) -> None:
    video_id, job_id = await queued(place, "sample")
    await workers[0].claim("sample")
    paths = [f"frames/{video_id}/0.jpg"]
    await workers[0].change(job_id, "status = 'done', payload = payload || $2", json.dumps({"frame_paths": paths}))
    rows = await workers[0].session.fetch("SELECT payload FROM jobs WHERE job_type = 'ocr'")
    assert json.loads(rows[0]["payload"])["frame_paths"] == paths
    assert json.loads((await place.job(job_id)).result or "") == {"frame_paths": paths}


async def test_a_clip_that_is_done_is_kept_for_thirty_days(place: Place, workers: list[Worker]) -> None:
    _, job_id = await queued(place, "clip_generate")
    claim = await workers[0].claim("clip_generate")
    await workers[0].change(job_id, "status = 'done'")
    clip = await place.catalog.clip(json.loads(claim["payload"])["clip_id"], SERVICE)
    assert clip is not None
    assert (clip.actual_start, clip.actual_end) == (0, 5000)
    assert clip.expires_at is not None
    assert (await workers[0].session.fetch("SELECT id FROM jobs WHERE status = 'queued'")) == []


@pytest.mark.parametrize(
    ("state", "change", "message"),
    [
        ("queued", "status = 'done'", "queued cannot become done"),
        ("queued", "status = 'failed'", "queued cannot become failed"),
        ("queued", "locked_by = 'me'", "come with processing"),
        ("queued", "payload = '{}'", "only with the end of its work"),
        ("queued", "job_type = 'ocr'", "can be changed"),
        ("queued", "retry_count = 3", "grows by one"),
        ("processing", "status = NULL", "cannot become"),
        ("processing", "locked_until = now() + interval '3 days'", "at most 24 hours"),
        ("processing", "locked_by = 'other'", "is claimed by foreign-a"),
        ("done", "status = 'queued'", "done cannot become queued"),
        ("done", "status = 'processing'", "done cannot become processing"),
        ("done", "status = 'failed'", "done cannot become failed"),
        ("done", "priority = 3", "stays as it is"),
        ("failed", "status = 'done'", "failed cannot become done"),
        ("failed", "status = 'processing'", "failed cannot become processing"),
    ],
)
async def test_illegal_moves_are_refused(
    place: Place, workers: list[Worker], state: str, change: str, message: str
) -> None:
    _, job_id = await queued(place)
    if state != "queued":
        await workers[0].claim()
    if state in {"done", "failed"}:
        await workers[0].change(job_id, f"status = '{state}'")
    before = await place.job(job_id)
    with pytest.raises(asyncpg.PostgresError, match=message):
        await workers[0].change(job_id, change)
    assert await place.job(job_id) == before


async def test_retries_end_with_the_third(place: Place, workers: list[Worker]) -> None:
    _, job_id = await queued(place)
    for retry in range(4):
        claim = await workers[0].claim()  # before its time: the contract's poll does not know of one
        assert claim["retry_count"] == retry
        await workers[0].change(job_id, "status = 'failed'")
        if retry < 3:
            await workers[0].change(job_id, "status = 'queued', retry_count = retry_count + 1")
            (row,) = await workers[0].session.fetch("SELECT retry_count, run_at > now() AS later FROM jobs")
            assert tuple(row) == (retry + 1, True)
    with pytest.raises(asyncpg.CheckViolationError, match="no retries left"):
        await workers[0].change(job_id, "status = 'queued'")


async def test_a_worker_of_ours_keeps_its_claim(place: Place, workers: list[Worker]) -> None:
    job = await ours(place)
    for change in (
        "status = 'done'",
        "status = 'failed'",
        "status = 'queued'",
        "locked_until = now()",
        "locked_by = 'x'",
    ):
        with pytest.raises(asyncpg.ObjectInUseError, match="is claimed by ours"):
            await workers[0].change(job.job_id, change)
    assert await place.store.settle([commands.succeed(job)]) == [Settled.APPLIED]


async def test_ours_and_theirs_never_have_one_job(place: Place, workers: list[Worker]) -> None:
    await queued(place)
    async with workers[0].session.transaction():
        assert await workers[0].session.fetchrow(POLL, "transcode") is not None
        assert await workers[1].claim() is None
        assert await place.store.claim(ClaimRequest("ours")) == []
    (job,) = await place.store.claim(ClaimRequest("ours"))
    assert await workers[1].claim() is None
    assert job.status is Status.RUNNING


async def sweep(place: Place) -> int:
    return await Housekeeping(Engine(place.store)).reap()


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_worker_that_died_is_recovered_and_what_it_says_later_is_refused(
    place: Place, workers: list[Worker], *, is_named: bool
) -> None:
    _, job_id = await queued(place)
    dead, other = (workers[0], workers[1]) if is_named else (workers[2], Worker(workers[1].session))
    await dead.claim(until="now() + interval '5 minutes'")
    assert await sweep(place) == 0
    await dead.change(job_id, "locked_until = now() - interval '1 second'")
    assert await sweep(place) == 1
    assert (await history(place, job_id))[0] == ["queued", "running", "lease_lost"]
    with pytest.raises(asyncpg.CheckViolationError, match="queued cannot become done"):
        await dead.change(job_id, "status = 'done'")
    assert (await other.claim())["retry_count"] == 1
    for change in ("status = 'done'", "status = 'failed'", "locked_until = now()"):
        with pytest.raises(asyncpg.ObjectInUseError):
            await dead.change(job_id, change)
    assert await other.change(job_id, "status = 'done'") == "UPDATE 1"
    with pytest.raises(asyncpg.PostgresError):
        await dead.change(job_id, "status = 'done'")


async def test_without_locked_until_a_claim_lasts_an_hour_after_the_last_word(
    place: Place, workers: list[Worker]
) -> None:
    _, job_id = await queued(place)
    await workers[2].claim()
    lasts = "SELECT extract(epoch FROM locked_until - now())::float FROM jobs"
    assert await workers[2].session.fetchval(lasts) == pytest.approx(3600, abs=60)
    await workers[2].session.execute("SET callsheet.sql_idle_s = 90")
    await workers[2].change(job_id, "updated_at = now()")
    assert await workers[2].session.fetchval(lasts) == pytest.approx(90, abs=60)


async def test_another_worker_takes_a_job_whose_lease_is_over(place: Place, workers: list[Worker]) -> None:
    _, job_id = await queued(place)
    await workers[0].claim()
    reclaim = "locked_by = $2, locked_until = now() + interval '5 minutes'"
    with pytest.raises(asyncpg.ObjectInUseError):
        await workers[1].change(job_id, reclaim, "foreign-b")
    await workers[0].change(job_id, "locked_until = now() - interval '1 second'")
    assert await workers[1].change(job_id, f"{reclaim}, status = 'processing'", "foreign-b") == "UPDATE 1"
    job = await place.job(job_id)
    assert (job.claim_version, job.attempt_count, job.lease_losses, job.worker_id) == (2, 2, 1, "sql:foreign-b")
    assert (await history(place, job_id))[0] == ["queued", "running", "lease_lost", "running"]
    with pytest.raises(asyncpg.ObjectInUseError):
        await workers[0].change(job_id, "status = 'done'")


async def test_priority_and_depends_on(place: Place, workers: list[Worker]) -> None:
    first, late = (await queued(place))[1], (await queued(place))[1]
    await workers[0].change(late, "priority = 5")
    (claimed_job,) = await place.store.claim(ClaimRequest("ours", limit=1))
    assert claimed_job.job_id == late
    video_id = await place.video()
    child = await workers[0].session.fetchval(
        "INSERT INTO jobs (video_id, job_type, depends_on) VALUES ($1, 'transcode', $2) RETURNING id",
        uuid.UUID(video_id),
        uuid.UUID(first),
    )
    with pytest.raises(asyncpg.CheckViolationError, match="wait for itself"):
        await workers[0].change(first, "depends_on = $2", child)
    assert str((await workers[0].claim())["id"]) == first
    assert await place.store.claim(ClaimRequest("ours")) == []
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match=f"waits for job {first}"):
        await workers[1].claim()
    await workers[0].change(first, "status = 'done'")
    job_ids = {job.job_id for job in await place.store.claim(ClaimRequest("ours"))}
    assert str(child) in job_ids


async def test_jobs_are_read_as_their_videos_are(place: Place, workers: list[Worker]) -> None:
    await queued(place)
    for claims, count in (
        ({"role": "service_role"}, 1),
        ({"sub": "ann"}, 1),
        ({"sub": "bob"}, 0),
        ({"sub": "bob", "team_id": "crew"}, 1),
    ):
        await workers[0].session.execute("SELECT set_config('request.jwt.claims', $1, false)", json.dumps(claims))
        assert len(await workers[0].session.fetch("SELECT 1 FROM jobs")) == count, claims
        if not count:
            assert await workers[0].claim() is None
            assert await workers[0].session.execute("UPDATE jobs SET priority = 9") == "UPDATE 0"
