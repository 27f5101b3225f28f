"""Jobs that the service role makes by SQL, as the contract lets it.

Inserted rows become jobs equal to the routes' jobs, or are refused.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import asyncpg
import pytest

from callsheet.catalog import migrate_catalog, open_catalog
from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Video, VideoStatus
from callsheet.contracts.cortana import paths
from callsheet.contracts.cortana.jobs import clip_job, stage_job, start_job
from callsheet.kernel.job import Job, NewJob
from callsheet.store.protocol import ClaimRequest, Store
from tests import stores
from tests.catalog.sql import run

OWNER = "ann"
SAME = ("requester_id", "contract", "kind", "queue", "priority", "status", "max_attempts", "retry", "unique_key")
INSERT = "INSERT INTO jobs (video_id, job_type, payload) VALUES ($1, $2::job_type, $3) RETURNING id, status, payload"


class Place(NamedTuple):
    store: Store
    catalog: Catalog
    session: Any

    async def video(self) -> str:
        video_id = str(uuid.uuid4())
        video = Video(video_id, OWNER, "crew", "t", VideoStatus.UPLOADING, paths.original(video_id))
        await self.catalog.add_video(video)
        return video_id

    async def insert(
        self, video_id: str, job_type: str, payload: dict[str, Any] | None = None, role: str = "service_role"
    ) -> Any:
        async with self.session.transaction():
            await self.session.execute(f"SET LOCAL ROLE {role}")
            payload_text = None if payload is None else json.dumps(payload)
            return await self.session.fetchrow(INSERT, uuid.UUID(video_id), job_type, payload_text)

    async def job(self, job_id: object) -> Job:
        (job,) = await self.store.get([str(job_id)])
        assert job is not None
        return job


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    url = stores.fresh_url("postgres")
    store = await stores.open_store(url)
    await migrate_catalog(url)
    catalog = open_catalog(url)
    await catalog.open()
    session = await asyncpg.connect(url)
    yield Place(store, catalog, session)
    await session.close()
    await catalog.close()
    await store.close()


def made_by_us(video_id: str, job_type: str) -> NewJob:
    original = {"video_id": video_id, "s3_original_path": paths.original(video_id)}
    match job_type:
        case "transcode":
            return start_job(video_id, OWNER)
        case "sample":
            return stage_job("sample", video_id, OWNER, {**original, "target_fps": 10, "dedupe_threshold": 0.95})
        case "ocr":
            body = {"frame_paths": ["f"], "languages": ["eng"], "min_confidence": 0.6}
            return stage_job("ocr", video_id, OWNER, {"video_id": video_id, **body})
        case "clip_generate":
            return clip_job(video_id, "clip-xyz-123", (1500, 3000), 2000, OWNER)
    return stage_job("segment_index", video_id, OWNER, {"video_id": video_id})


ASKED: dict[str, dict[str, Any] | None] = {
    "transcode": None,
    "sample": {},
    "ocr": {"frame_paths": ["f"]},
    "segment_index": None,
    "clip_generate": {"clip_id": "clip-xyz-123", "t_start": 1500, "t_end": 3000},
}


@pytest.mark.parametrize("job_type", ASKED)
async def test_a_job_that_is_inserted_is_the_one_that_a_route_makes(place: Place, job_type: str) -> None:
    video_id, other = await place.video(), await place.video()
    row = await place.insert(video_id, job_type, ASKED[job_type])
    new = made_by_us(video_id, job_type)
    assert (row["status"], json.loads(row["payload"])) == ("queued", json.loads(new.payload))
    ours = made_by_us(other, job_type)
    await place.store.enqueue([ours])
    theirs, known = await place.job(row["id"]), await place.job(ours.job_id)
    for name in SAME:
        assert str(getattr(theirs, name)).replace(video_id, other) == str(getattr(known, name)), name
    assert (theirs.correlation_id, theirs.event_seq) == (video_id, known.event_seq)
    events = await place.store.events({theirs.job_id: 0}, 10)
    assert [event.type for event in events] == ["queued"]
    jobs = await place.store.claim(ClaimRequest("w", limit=2))
    assert {job.job_id for job in jobs} == {theirs.job_id, known.job_id}


async def test_a_clip_that_is_inserted_can_be_read(place: Place) -> None:
    video_id = await place.video()
    row = await place.insert(video_id, "clip_generate", {"t_start": 1500, "t_end": 3000})
    clip_id = json.loads(row["payload"])["clip_id"]
    clip = await place.catalog.clip(clip_id, SERVICE)
    assert clip is not None
    assert (clip.job_id, clip.owner_id, clip.team_id) == (str(row["id"]), OWNER, "crew")
    assert (clip.t_start, clip.t_end, clip.padding_ms) == (1500, 3000, 2000)
    assert clip.s3_path == paths.clip(video_id, clip_id)


async def test_a_clip_that_is_asked_for_again_has_a_job_more_and_one_row(place: Place) -> None:
    """The document lets duplicate requests in: the worker of the second one meets the clip and skips."""
    video_id, other = await place.video(), await place.video()
    body = {"clip_id": "clip-xyz-123", "t_start": 1500, "t_end": 3000}
    first = await place.insert(video_id, "clip_generate", body)
    second = await place.insert(video_id, "clip_generate", body)
    assert first["id"] != second["id"]
    clip = await place.catalog.clip("clip-xyz-123", SERVICE)
    assert clip is not None
    assert clip.job_id == str(first["id"])
    with pytest.raises(asyncpg.UniqueViolationError, match="clip of another video"):
        await place.insert(other, "clip_generate", body)
    await place.session.execute("UPDATE jobs SET status = 'processing' WHERE id = $1", first["id"])
    await place.session.execute("UPDATE jobs SET status = 'failed' WHERE id = $1", first["id"])
    third = await place.insert(video_id, "clip_generate", body)
    clip = await place.catalog.clip("clip-xyz-123", SERVICE)
    assert clip is not None
    assert clip.job_id == str(third["id"])  # the first one's end is not the clip's any more


async def test_one_job_of_a_pipeline_type_is_active_and_the_video_waits(place: Place) -> None:
    video_id = await place.video()
    await place.insert(video_id, "transcode")
    with pytest.raises(asyncpg.UniqueViolationError):
        await place.insert(video_id, "transcode")
    await place.insert(video_id, "sample")
    for _ in range(2):
        await place.insert(video_id, "clip_generate", {"t_start": 0, "t_end": 1})
    rows = await run(place.catalog, "SELECT job_type::text FROM jobs ORDER BY created_at, id")
    assert sorted(row[0] for row in rows) == ["clip_generate", "clip_generate", "sample", "transcode"]
    video = await place.catalog.video(video_id, SERVICE)
    assert video is not None
    assert video.status is VideoStatus.QUEUED


async def test_what_cannot_be_a_job_is_refused(place: Place) -> None:
    video_id = await place.video()
    wrong: list[tuple[str, str, dict[str, Any] | None, type[Exception]]] = [
        (str(uuid.uuid4()), "transcode", None, asyncpg.ForeignKeyViolationError),
        (video_id, "transcode", {"video_id": str(uuid.uuid4())}, asyncpg.CheckViolationError),
        (video_id, "clip_generate", {"clip_id": "../x", "t_start": 0, "t_end": 1}, asyncpg.CheckViolationError),
        (video_id, "clip_generate", {"t_start": 3000, "t_end": 1500}, asyncpg.CheckViolationError),
        (video_id, "clip_generate", {}, asyncpg.NotNullViolationError),
        (video_id, "ocr", {"frame_paths": ["x" * 1000] * 300}, asyncpg.CheckViolationError),
    ]
    for of, job_type, payload, error in wrong:
        with pytest.raises(error):
            await place.insert(of, job_type, payload)
    for column, value in (("status", "'done'"), ("locked_by", "'me'"), ("depends_on", f"'{uuid.uuid4()}'")):
        with pytest.raises((asyncpg.CheckViolationError, asyncpg.ForeignKeyViolationError)):
            await place.session.execute(
                f"INSERT INTO jobs (video_id, job_type, {column}) VALUES ('{video_id}', 'transcode', {value})"
            )
    assert await run(place.catalog, "SELECT 1 FROM jobs") == []


async def test_nobody_else_makes_jobs(place: Place) -> None:
    video_id = await place.video()
    for role in ("anon", "authenticated"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await place.insert(video_id, "transcode", role=role)
