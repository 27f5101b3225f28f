"""Credentials that storage refuses in the middle of a job.

The worker requests new credentials, and the attempt continues.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests import stores
from tests.contracts.euterpe.kit import MP3, STAGES, keys_in, keys_of, running, sha256
from tests.media.corpus import Corpus
from tests.objects.front import Verdict, fronting
from tests.outbox.sink import Got, Sink, answer
from tests.seaweed import ADMIN, BUCKET, s3_server

BOTH = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


class Storage:
    """An S3 behind a front that refuses the keys of the first version, from a stage on."""

    def __init__(self, stage: str, refusal: tuple[int, str]) -> None:
        self.prefix = f"job-{uuid.uuid4().hex[:12]}"
        self.refusal = refusal
        self.verbs = {"fetching": ("GET", "HEAD"), "uploading": ("PUT", "POST")}[stage]
        self.old = ""

    def judge(self, method: str, target: str, head: str) -> Verdict:
        return self.refusal if self.old and method in self.verbs and self.old in target + head else None

    async def credentials(self) -> dict[str, Any]:
        keys = await s3_server().temporary(["s3:*"], f"{self.prefix}/*")
        return {"source": keys_of(keys), "output": keys_of(keys)}


@BOTH
@pytest.mark.parametrize(
    ("stage", "refusal"), [("fetching", (403, "AccessDenied")), ("uploading", (400, "ExpiredToken"))]
)
async def test_refused_credentials_are_refreshed_in_place_and_the_attempt_goes_on(
    kind: str, stage: str, refusal: tuple[int, str], tmp_path: Path, corpus: Corpus
) -> None:
    storage = Storage(stage, refusal)
    own = s3_server().objects(ADMIN, prefix=storage.prefix)
    await own.put_file("in/sound.wav", corpus("sound.wav"))
    async with (
        fronting(s3_server().endpoint, storage.judge) as front,
        running(stores.fresh_url(kind), tmp_path) as stack,
    ):
        first = await storage.credentials()
        storage.old = first["output"]["access_key_id"]

        async def newer(_: dict[str, Any]) -> dict[str, Any]:
            return await storage.credentials()

        stack.on_refresh(newer)
        job_id = await stack.post(
            {
                "source": f"s3://{BUCKET}/{storage.prefix}/in/sound.wav",
                "source_storage": {"endpoint": front.url},
                "output": f"s3://{BUCKET}/{storage.prefix}/out",
                "output_storage": {"endpoint": front.url},
                "outputs": [MP3],
                "credentials": first,
                "refresh_url": stack.refresh_url,
                "status_webhook_url": stack.hook,
            }
        )
        status = await stack.ended(job_id)
        assert (status["status"], status["error"]) == ("succeeded", None)
        assert (status["attempt_count"], status["refresh_count"]) == (1, 1)
        (result,) = status["outputs"]
        assert result["location"] == f"s3://{BUCKET}/{storage.prefix}/out/sound.mp3"
        assert sha256(await own.get("out/sound.mp3")) == result["sha256"]
        assert await keys_in(own) == {"in/sound.wav", "out/sound.mp3"}
        (request,) = stack.refreshes
        assert (request["job_id"], request["credential_version"], request["refresh_count"]) == (job_id, 1, 1)
        await stack.told("succeeded")
        assert [event["status"] for event in stack.events()] == STAGES
        assert front.refused
    await own.close()


async def test_a_signed_url_that_is_refused_is_replaced_by_a_newer_one(tmp_path: Path, corpus: Corpus) -> None:
    raw = corpus("sound.wav").read_bytes()

    async def serve(_: Sink, request: Got, writer: Any) -> None:
        if "token=new" in request.path:
            await answer("200 OK", raw)(_, request, writer)
        else:
            await answer("403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>")(_, request, writer)

    async with Sink(serve) as site, running(stores.fresh_url("sqlite"), tmp_path) as stack:

        async def newer(_: dict[str, Any]) -> dict[str, Any]:
            return {"source_url": f"http://127.0.0.1:{site.port}/a?token=new"}

        stack.on_refresh(newer)
        job_id = await stack.post(
            {
                "source": f"http://127.0.0.1:{site.port}/a?token=old",
                "outputs": [MP3],
                "refresh_url": stack.refresh_url,
            }
        )
        status = await stack.ended(job_id)
        assert (status["status"], status["refresh_count"]) == ("succeeded", 1)
        assert json.loads((await stack.live.engine.get(job_id)).result or "")["source"]["sha256"] == sha256(raw)


async def test_without_a_refresh_url_refused_credentials_are_the_end(tmp_path: Path) -> None:
    async with Sink(answer("401 Unauthorized")) as site, running(stores.fresh_url("sqlite"), tmp_path) as stack:
        job_id = await stack.post({"source": f"http://127.0.0.1:{site.port}/a?s=1", "outputs": [MP3]})
        status = await stack.ended(job_id)
        assert (status["status"], status["error"]["code"]) == ("failed", "credential_rejected")
        assert (status["attempt_count"], status["refresh_count"]) == (1, 0)


async def test_a_requester_that_refuses_to_refresh_ends_the_job(tmp_path: Path) -> None:
    async with Sink(answer("403 Forbidden")) as site, running(stores.fresh_url("sqlite"), tmp_path) as stack:
        stack.sink.by_path["/refresh"] = answer("410 Gone")
        job_id = await stack.post(
            {
                "source": f"http://127.0.0.1:{site.port}/a?s=1",
                "outputs": [MP3],
                "refresh_url": stack.refresh_url,
            }
        )
        status = await stack.ended(job_id)
        assert (status["status"], status["error"]["code"]) == ("failed", "credential_rejected")
        assert status["refresh_count"] == 1
