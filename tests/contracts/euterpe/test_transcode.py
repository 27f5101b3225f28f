"""Jobs from POST to the last callback, with a real ffmpeg, a real S3 and both databases."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import uuid
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callsheet.contracts.euterpe import fetch
from callsheet.engine.housekeeping import Housekeeping
from callsheet.kernel import commands
from callsheet.kernel.retry import Backoff, JobError
from callsheet.media import spec
from callsheet.objects.folder import FolderObjects
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.contracts.euterpe.kit import MP3, STAGES, TENANT, keys_in, keys_of, running, sha256
from tests.media.corpus import Corpus
from tests.outbox.sink import Sink, answer
from tests.running_worker import until
from tests.seaweed import ADMIN, BUCKET, s3_server

BOTH = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


def left_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []


@BOTH
async def test_a_job_goes_through_all_stages_and_each_is_told_by_a_signed_callback(
    kind: str, tmp_path: Path, corpus: Corpus
) -> None:
    source = corpus("sound.wav")
    async with running(stores.fresh_url(kind), tmp_path) as stack:
        outputs_wanted = [
            {**MP3, "audio_kbps": 64},
            {"key": "sound.flac", "format": "flac", "start_s": 0.5, "end_s": 1.5},
        ]
        job_id = await stack.post(
            {
                "source": await stack.own_source(source),
                "output": "object:talks/1",
                "outputs": outputs_wanted,
                "status_webhook_url": stack.hook,
                "metadata": {"talk": "1"},
            }
        )
        status = await stack.ended(job_id)
        assert (status["status"], status["error"], status["attempt_count"]) == ("succeeded", None, 1)
        mp3, flac = status["outputs"]
        assert (mp3["key"], mp3["codec"], mp3["mime"]) == ("sound.mp3", "mp3", "audio/mpeg")
        assert mp3["duration_s"] == pytest.approx(2, abs=0.1)
        assert flac["duration_s"] == pytest.approx(1, abs=0.1)
        raw = await stack.objects.get(f"outputs/{TENANT}/talks/1/sound.mp3")
        assert (len(raw), sha256(raw)) == (mp3["bytes"], mp3["sha256"])
        assert mp3["location"] == f"object:outputs/{TENANT}/talks/1/sound.mp3"
        assert mp3["url"].startswith(f"/objects/outputs/{TENANT}/talks/1/sound.mp3?")
        await stack.told("succeeded")
        events = stack.events()
        assert [event["status"] for event in events] == STAGES
        assert [event["previous_status"] for event in events] == ["queued", *STAGES[:-1]]
        assert {event["job_id"] for event in events} == {job_id}
        assert all(event["metadata"] == {"talk": "1"} for event in events)
        assert ["outputs" in event for event in events] == [False, False, False, False, True]
        assert [out["sha256"] for out in events[-1]["outputs"]] == [mp3["sha256"], flac["sha256"]]
        for request in stack.sink.got:
            assert stack.receiver.verify(request.headers, request.body).event_id == request.event_id
        progress = [e.progress for e in await stack.live.engine.store.events({job_id: 0}, 100)]
        assert progress == sorted(progress)
        assert left_in(stack.workspaces) == []
        own = await keys_in(stack.objects)
        assert own == {
            f"uploads/{TENANT}/0/sound.wav",
            *(f"outputs/{TENANT}/talks/1/{n['key']}" for n in outputs_wanted),
        }


async def test_video_is_made_as_mp4_and_as_hls_whose_index_comes_last(tmp_path: Path, corpus: Corpus) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        job_id = await stack.post(
            {
                "source": await stack.own_source(corpus("normal.mp4")),
                "output": "object:film",
                "outputs": [
                    {"key": "small.mp4", "format": "mp4", "width": 160, "height": 90},
                    {"key": "stream", "format": "hls", "height": 180},
                ],
            }
        )
        status = await stack.ended(job_id)
        assert status["status"] == "succeeded", status
        mp4, hls = status["outputs"]
        assert (mp4["width"], mp4["height"], mp4["codec"]) == (160, 90, "h264")
        assert hls["location"].endswith("/film/stream/index.m3u8")
        index = (await stack.objects.get(f"outputs/{TENANT}/film/stream/index.m3u8")).decode()
        segments = [line for line in index.splitlines() if line and not line.startswith("#")]
        assert segments
        infos = {info.key: info async for info in stack.objects.list(f"outputs/{TENANT}/film/stream")}
        written_text = [infos[f"outputs/{TENANT}/film/stream/{name}"].modified_ms for name in (*segments, "index.m3u8")]
        assert written_text == sorted(written_text)
        assert stack.sink.got == []  # nobody asked for callbacks


async def test_nothing_secret_is_in_the_store_the_callbacks_the_log_or_the_answers(
    tmp_path: Path, corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    prefix = f"job-{uuid.uuid4().hex[:12]}"
    own = s3_server().objects(ADMIN, prefix=prefix)
    await own.put_file("sound.wav", corpus("sound.wav"))
    signed_url = (await own.sign_get("sound.wav", 600)).url
    keys = await s3_server().temporary(["s3:*"], f"{prefix}/*")
    url = stores.fresh_url("sqlite")
    async with running(url, tmp_path) as stack:
        body = {
            "source": signed_url,
            "output": f"s3://{BUCKET}/{prefix}/out",
            "output_storage": {"endpoint": s3_server().endpoint},
            "outputs": [MP3, {"key": "film.mp4", "format": "mp4"}],  # there is no picture: it fails
            "credentials": {"output": keys_of(keys)},
            "refresh_url": stack.refresh_url,
            "status_webhook_url": stack.hook,
        }
        job_id = await stack.post(body)
        status = await stack.ended(job_id)
        assert (status["status"], status["error"]["code"]) == ("failed", "no_such_stream")
        assert (await stack.told("failed"))["error"] == status["error"]
        status_text = json.dumps(
            [status, stack.events(), (await stack.client.get(f"/transcode/status?job_id={job_id}")).text]
        )
        job = await stack.live.engine.get(job_id)
        stored_text = f"{job.payload}{await stack.live.engine.store.events({job_id: 0}, 100)}{job.error}"
    await own.close()
    database = Path(url.removeprefix("sqlite:///"))
    files = b"".join(path.read_bytes() for path in database.parent.glob(f"{database.name}*"))
    secrets = [keys.secret_access_key, keys.session_token, signed_url.partition("?")[2], "X-Amz-Signature"]
    for secret in secrets:
        assert secret not in status_text + stored_text
        assert secret.encode() not in files
        assert secret not in "\n".join(record.getMessage() for record in caplog.records if "callsheet" in record.name)


async def test_a_source_over_the_limit_is_refused_and_nothing_is_left(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fetch, "SPARE_BYTES", 1 << 60
    )  # its size is looked at before the disk, which may have room later
    async with running(stores.fresh_url("sqlite"), tmp_path, max_source_bytes=10_000) as stack:
        job_id = await stack.post({"source": await stack.own_source(corpus("sound.wav")), "outputs": [MP3]})
        status = await stack.ended(job_id)
        assert (status["status"], status["error"]["code"]) == ("failed", "source_too_large")
        assert status["attempt_count"] == 1
        assert left_in(stack.workspaces) == []


async def test_an_output_over_twice_a_large_source_is_stopped(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec, "GB", 10_000)  # a source of 16 KB is large here
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        wav = {"key": "sound.wav", "format": "wav"}
        job_id = await stack.post({"source": await stack.own_source(corpus("sound.mp3")), "outputs": [wav]})
        status = await stack.ended(job_id)
        assert (status["status"], status["error"]["code"]) == ("failed", "output_too_large")
        assert left_in(stack.workspaces) == []
        assert await keys_in(stack.objects) == {f"uploads/{TENANT}/0/sound.mp3"}


def test_the_twice_rule_holds_above_a_gigabyte_alone() -> None:
    assert spec.output_limit(1_000_000_000) == 0
    assert spec.output_limit(1_000_000_001) == 2_000_000_002


async def test_a_full_disk_is_told_before_the_source_is_fetched_and_waited_for(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "OUTAGE_BACKOFF", Backoff(table_ms=(50,), low=1.0))
    spare = fetch.SPARE_BYTES
    monkeypatch.setattr(fetch, "SPARE_BYTES", 1 << 60)
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        source = await stack.own_source(corpus("sound.wav"))
        job_id = await stack.post({"source": source, "outputs": [MP3], "max_attempts": 1})

        async def error() -> str:
            return (await stack.live.engine.get(job_id)).error or ""

        await until(error)
        assert "disk_full" in await error()
        assert "waiting for room on the disk" in await error()
        monkeypatch.setattr(fetch, "SPARE_BYTES", spare)
        status = await stack.ended(job_id)
        assert (status["status"], status["attempt_count"]) == ("succeeded", 1)


@pytest.mark.parametrize("name", ["noise", "playlist"])
async def test_what_is_no_media_fails_for_good(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"#EXTM3U\n/etc/passwd\n" if name == "playlist" else bytes(range(7, 256)) * 40)
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        status = await stack.ended(await stack.post({"source": await stack.own_source(path), "outputs": [MP3]}))
        assert status["status"] == "failed"
        assert status["error"]["code"] in {"not_media", "unsupported_input"}
        assert set(status["error"]) <= {"code", "message", "retryable"}


async def test_a_source_at_an_ipv6_address_is_fetched_where_its_network_is_open(tmp_path: Path, corpus: Corpus) -> None:
    raw = corpus("sound.mp3").read_bytes()
    try:
        there = await Sink(answer(body=raw), host="::1").__aenter__()
    except OSError:
        pytest.skip("this machine has no IPv6")
    try:
        async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
            source = f"http://[0:0::1]:{there.port}/a.mp3?X-Amz-Signature=1"
            job_id = await stack.post({"source": source, "outputs": [MP3]})
            assert (await stack.ended(job_id))["status"] == "succeeded"
        assert [request.headers["host"] for request in there.got] == [f"[0:0::1]:{there.port}"]
    finally:
        await there.__aexit__()


async def test_a_source_that_is_not_there_fails_for_good(tmp_path: Path) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        job_id = await stack.post({"source": f"object:uploads/{TENANT}/0/none.wav", "outputs": [MP3]})
        status = await stack.ended(job_id)
        assert (status["status"], status["error"]["code"]) == ("failed", "object_not_found")


async def test_loudness_rate_and_channels_are_what_was_asked_for(tmp_path: Path, corpus: Corpus) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        quiet = {"key": "a.wav", "format": "wav", "loudness_lufs": -30, "sample_rate_hz": 16000, "channels": 1}
        source = await stack.own_source(corpus("sound.wav"))
        status = await stack.ended(await stack.post({"source": source, "output": "object:", "outputs": [quiet]}))
        assert status["status"] == "succeeded", status
        raw = await stack.objects.get(f"outputs/{TENANT}/a.wav")
    with wave.open(io.BytesIO(raw)) as sound:
        assert (sound.getframerate(), sound.getnchannels()) == (16000, 1)
        samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2") / 32768
    assert 20 * np.log10(np.sqrt(np.mean(samples**2))) == pytest.approx(-30, abs=1.5)  # a tone: RMS is near its LUFS


async def test_an_attempt_that_has_lost_its_claim_gives_no_output_its_name(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, copy = FolderObjects.put_file, FolderObjects.copy
    hosts: list[str] = []
    reaping: list[asyncio.Task[int]] = []

    async def put_and_lose(self: FolderObjects, key: str, *args: Any, **options: Any) -> Any:
        info = await put(self, key, *args, **options)
        if ".attempts" in key and not reaping:
            reaping.append(asyncio.create_task(reap_an_hour_later()))  # the worker may stop us before it has ended
            await asyncio.shield(reaping[0])
        return info

    async def reap_an_hour_later() -> int:
        later = await stack.live.engine.store.now() + 3_600_000
        return await Housekeeping(stack.live.engine).reap(now=later)

    async def noted(self: FolderObjects, source: str, target: str, **options: Any) -> Any:
        hosts.append(source.split("/")[-2])
        return await copy(self, source, target, **options)

    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        source = await stack.own_source(corpus("sound.wav"))
        monkeypatch.setattr(FolderObjects, "put_file", put_and_lose)
        monkeypatch.setattr(FolderObjects, "copy", noted)
        status = await stack.ended(await stack.post({"source": source, "output": "object:a", "outputs": [MP3]}))
        assert (status["status"], status["attempt_count"]) == ("succeeded", 2)
        assert await reaping[0] == 1
        assert hosts == ["2"]  # of the second claim alone
        assert await keys_in(stack.objects) == {f"uploads/{TENANT}/0/sound.wav", f"outputs/{TENANT}/a/sound.mp3"}


async def test_what_a_killed_attempt_has_staged_is_removed_by_the_next(tmp_path: Path, corpus: Corpus) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path, worker=False) as stack:
        source = await stack.own_source(corpus("sound.wav"))
        job_id = await stack.post({"source": source, "output": "object:a", "outputs": [MP3]})
        (job,) = await stack.live.engine.claim(ClaimRequest("killed", ("transcode",), 1))
        await stack.objects.put(f"outputs/{TENANT}/a/.attempts/{job_id}/1/sound.mp3", b"half of it")
        await stack.live.engine.settle([commands.retry(job, JobError("503"), delay_ms=0)])
        await stack.app.worker(workspaces=stack.workspaces).run(burst=True)
        assert (await stack.status(job_id))["status"] == "succeeded"
        assert await keys_in(stack.objects) == {f"uploads/{TENANT}/0/sound.wav", f"outputs/{TENANT}/a/sound.mp3"}
