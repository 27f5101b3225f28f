"""Every format that a request may ask for, made end to end and read by another library; and sources in all formats."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import av
import pytest

from callsheet.media.spec import FORMATS
from tests import stores
from tests.contracts.euterpe.kit import MP3, TENANT, Stack, running
from tests.media.corpus import Corpus

# output → what a file of it holds: container, codecs of sound and picture, as PyAV names them
SOUND: dict[str, tuple[dict[str, Any], str, set[str]]] = {
    "mp3": ({"key": "a.mp3", "format": "mp3", "audio_kbps": 64}, "mp3", {"mp3float", "mp3"}),
    "aac": ({"key": "a.m4a", "format": "aac"}, "mov,mp4,m4a,3gp,3g2,mj2", {"aac"}),
    "opus": ({"key": "a.opus", "format": "opus"}, "ogg", {"opus", "libopus"}),
    "flac": ({"key": "a.flac", "format": "flac"}, "flac", {"flac"}),
    "wav": ({"key": "a.wav", "format": "wav", "sample_rate_hz": 16000}, "wav", {"pcm_s16le"}),
}
SMALL = {"height": 90}
FILMS: dict[str, tuple[dict[str, Any], str, set[str]]] = {
    "mp4": ({"key": "a.mp4", "format": "mp4", **SMALL}, "h264", {"aac"}),
    "vp9": ({"key": "a.webm", "format": "webm", **SMALL}, "vp9", {"opus", "libopus"}),
    "av1": ({"key": "b.webm", "format": "webm", "video_codec": "av1", **SMALL}, "av1", {"opus", "libopus"}),
    "hls": ({"key": "stream", "format": "hls", **SMALL}, "h264", {"aac"}),
}
SOURCES = ["sound.aac", "sound.ogg", "sound.flac", "cover.mp3", "normal.webm", "normal.mkv", "normal.ts", "normal.avi"]


async def made(stack: Stack, source: Path, outputs: list[dict[str, Any]], folder: str) -> list[dict[str, Any]]:
    body = {"source": await stack.own_source(source), "output": f"object:{folder}", "outputs": outputs}
    status = await stack.ended(await stack.post(body), 90)
    assert status["status"] == "succeeded", status
    results: list[dict[str, Any]] = status["outputs"]
    return results


async def raw(stack: Stack, output: dict[str, Any]) -> bytes:
    return await stack.objects.get(output["location"].removeprefix("object:"))


def test_the_formats_here_are_all_that_there_are() -> None:
    assert {spec["format"] for spec, *_ in (*SOUND.values(), *FILMS.values())} == set(FORMATS)


async def test_sound_alone_is_made_in_every_format_from_aac_alone(tmp_path: Path, corpus: Corpus) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        outputs = await made(stack, corpus("sound.aac"), [spec for spec, *_ in SOUND.values()], "sound")
        for output, (spec, container, codecs) in zip(outputs, SOUND.values(), strict=True):
            data = await raw(stack, output)
            assert (output["key"], output["format"], len(data)) == (spec["key"], spec["format"], output["bytes"])
            with av.open(io.BytesIO(data), "r") as file:
                assert file.format.name == container
                assert [stream.type for stream in file.streams] == ["audio"]
                assert file.streams.audio[0].codec_context.name in codecs
                messages = sum(frame.samples / frame.sample_rate for frame in file.decode(audio=0))
            assert messages == pytest.approx(1, abs=0.15)
            assert output["duration_s"] == pytest.approx(1, abs=0.15)


async def test_pictures_are_made_in_every_format_from_webm(tmp_path: Path, corpus: Corpus) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        outputs = await made(stack, corpus("normal.webm"), [spec for spec, *_ in FILMS.values()], "film")
        for output, (spec, picture, sound) in zip(outputs, FILMS.values(), strict=True):
            assert (output["key"], output["codec"]) == (spec["key"], picture)
            assert (output["width"], output["height"]) == (160, 90)
            data = await raw(stack, output)
            if spec["format"] == "hls":
                data = await _joined(stack, data.decode(), f"outputs/{TENANT}/film/stream")
            with av.open(io.BytesIO(data), "r") as file:
                assert file.streams.video[0].codec_context.name.removeprefix("lib").startswith((picture, "dav1d"))
                assert file.streams.audio[0].codec_context.name in sound
                assert sum(1 for _ in file.decode(video=0)) == pytest.approx(25, abs=2)


async def _joined(stack: Stack, index: str, folder: str) -> bytes:
    """Concatenate the segments of a playlist (or of its first variant) after the init segment."""
    names = [line for line in index.splitlines() if line and not line.startswith("#")]
    if names[0].endswith(".m3u8"):
        return await _joined(stack, (await stack.objects.get(f"{folder}/{names[0]}")).decode(), folder)
    first = [line.split('URI="')[1].partition('"')[0] for line in index.splitlines() if line.startswith("#EXT-X-MAP")]
    return b"".join([await stack.objects.get(f"{folder}/{name}") for name in (*first, *names)])


async def test_sources_of_all_kinds_are_read(tmp_path: Path, corpus: Corpus) -> None:
    async with running(stores.fresh_url("sqlite"), tmp_path) as stack:
        results = await asyncio.gather(*(made(stack, corpus(name), [MP3], name.replace(".", "-")) for name in SOURCES))
        for name, (output,) in zip(SOURCES, results, strict=True):
            with av.open(io.BytesIO(await raw(stack, output)), "r") as file:
                assert file.format.name == "mp3", name
                assert next(file.decode(audio=0)).samples > 0
