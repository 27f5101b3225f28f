from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from callsheet.media.arguments import arguments_for
from callsheet.media.binaries import Binary
from callsheet.media.errors import MediaError, OutputIncomplete, OutputTooLarge, TruncatedInput
from callsheet.media.ffmpeg import LIMITS, Ffmpeg, Work
from callsheet.media.output import measure
from callsheet.media.probe import Media, probe
from callsheet.media.progress import Progress
from callsheet.media.spec import OutputSpec
from callsheet.media.transcode import transcode
from tests.media.corpus import Corpus


@pytest.mark.parametrize(
    ("source", "spec", "codec"),
    [
        ("normal.mp4", OutputSpec("a.mp3", "mp3"), "mp3"),
        ("normal.ts", OutputSpec("a.m4a", "aac"), "aac"),
        ("sound.mp3", OutputSpec("a.opus", "opus", audio_kbps=32), "opus"),
        ("sound.ogg", OutputSpec("a.flac", "flac"), "flac"),
        ("late.mp4", OutputSpec("a.wav", "wav", sample_rate_hz=16000, channels=1), "pcm_s16le"),
        ("normal.webm", OutputSpec("a.mp4", "mp4"), "h264"),
        ("normal.avi", OutputSpec("a.webm", "webm"), "vp9"),
        ("silent.mp4", OutputSpec("a.webm", "webm", video_codec="av1", end_s=0.4), "av1"),
        ("slow.mp4", OutputSpec("a.mp4", "mp4"), "h264"),
        ("uneven.mp4", OutputSpec("a.mp4", "mp4"), "h264"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.key,
)
async def test_every_output_can_be_made(  # noqa: PLR0917
    corpus: Corpus, how: Ffmpeg, tmp_path: Path, source: str, spec: OutputSpec, codec: str
) -> None:
    output = await transcode(await corpus.media(source), spec, tmp_path, how)
    assert (output.key, output.codec, output.path) == (spec.key, codec, tmp_path / spec.key)
    assert output.sha256 == hashlib.sha256(output.path.read_bytes()).hexdigest()
    assert output.size_bytes == output.path.stat().st_size
    assert output.duration_s > 0.3
    assert [file.name for file in tmp_path.iterdir()] == [spec.key]


@pytest.mark.parametrize(
    ("source", "spec", "size"),
    [
        ("rotated.mp4", OutputSpec("a.mp4", "mp4", width=90), (90, 160)),
        ("odd.mkv", OutputSpec("a.mp4", "mp4"), (320, 180)),
        ("wide_pixels.mp4", OutputSpec("a.mp4", "mp4"), (262, 144)),
        ("silent.mp4", OutputSpec("a.mp4", "mp4", width=4096), (320, 180)),
        ("silent.mp4", OutputSpec("a.mp4", "mp4", width=400, upscale=True), (400, 224)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_picture_keeps_its_shape(  # noqa: PLR0917
    corpus: Corpus, how: Ffmpeg, tmp_path: Path, source: str, spec: OutputSpec, size: tuple[int, int]
) -> None:
    output = await transcode(await corpus.media(source), spec, tmp_path, how)
    assert (output.width, output.height) == size


async def test_a_part_is_as_long_as_was_asked_and_tags_are_gone(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    assert b"secret-title" in corpus("normal.mp4").read_bytes()
    output = await transcode(
        await corpus.media("normal.mp4"), OutputSpec("a.mp4", "mp4", start_s=0.5, end_s=1.5), tmp_path, how
    )
    assert output.duration_s == pytest.approx(1, abs=0.06)
    assert b"secret-title" not in output.path.read_bytes()
    again = await transcode(
        await corpus.media("normal.mp4"), OutputSpec("b.mp4", "mp4", start_s=0.5, end_s=1.5), tmp_path, how
    )
    assert again.sha256 == output.sha256


async def test_pictures_for_bright_screens_come_out_for_all(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    output = await transcode(await corpus.media("bright.mp4"), OutputSpec("a.mp4", "mp4"), tmp_path, how)
    media = await probe(output.path)
    assert media.video is not None
    assert not media.video.is_hdr
    assert media.video.pix_fmt == "yuv420p"


async def test_loudness_is_brought_to_the_target_and_progress_rises(
    corpus: Corpus, how: Ffmpeg, tmp_path: Path
) -> None:
    reports: list[Progress] = []
    spec = OutputSpec("a.flac", "flac", loudness_lufs=-23.0)
    output = await transcode(await corpus.media("sound.wav"), spec, tmp_path, how, reports.append)
    media = await probe(output.path)
    before = await measure(spec, await corpus.media("sound.wav"), tmp_path, how)
    after = await measure(spec, media, tmp_path, how)
    assert abs(before.integrated_lufs - -23.0) > 3
    assert after.integrated_lufs == pytest.approx(-23.0, abs=0.3)
    percents = [progress.percent for progress in reports if progress.percent is not None]
    assert percents == sorted(percents)
    assert percents[-1] > 95


async def test_half_a_download_is_never_an_output(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    with pytest.raises(TruncatedInput):
        await transcode(corpus.half("normal.mp4"), OutputSpec("a.mp4", "mp4"), tmp_path, how)
    assert list(tmp_path.iterdir()) == []


async def test_an_output_that_is_too_short_is_no_success(
    corpus: Corpus, how: Ffmpeg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here ffmpeg exits with 0, as after a full `-fs` or a quit."""

    def cut(spec: OutputSpec, media: Media, binary: Binary, gain_db: float) -> tuple[str, ...]:
        return ("-t", "1", *arguments_for(spec, media, binary, gain_db))

    monkeypatch.setattr("callsheet.media.transcode.arguments_for", cut)
    with pytest.raises(OutputIncomplete) as excinfo:
        await transcode(await corpus.media("normal.mp4"), OutputSpec("a.mp4", "mp4"), tmp_path, how)
    assert excinfo.value.code == "output_incomplete"
    assert list(tmp_path.iterdir()) == []


async def test_a_cancelled_transcode_leaves_nothing(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    running = asyncio.Event()
    spec = OutputSpec("a.webm", "webm", video_codec="av1", width=1280, upscale=True)
    task = asyncio.create_task(transcode(await corpus.media("long.mp4"), spec, tmp_path, how, lambda _: running.set()))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(tmp_path.iterdir()) == []


async def test_an_output_over_its_limit_leaves_nothing(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    small = how._replace(limits=LIMITS._replace(output_bytes=20_000))
    with pytest.raises(OutputTooLarge):
        await transcode(await corpus.media("normal.mp4"), OutputSpec("a.wav", "wav"), tmp_path, small)
    assert list(tmp_path.iterdir()) == []


async def test_a_source_over_a_gigabyte_limits_its_outputs(
    corpus: Corpus, how: Ffmpeg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    async def run(self: Ffmpeg, work: Work, folder: Path, *rest: object) -> None:
        seen.append(self.limits.output_bytes)
        raise MediaError("enough")

    monkeypatch.setattr(Ffmpeg, "run", run)
    large = (await corpus.media("normal.mp4"))._replace(size_bytes=2 * 10**9)
    for spec in (OutputSpec("a.mp4", "mp4"), OutputSpec("a", "hls")):
        with pytest.raises(MediaError, match="enough"):
            await transcode(large, spec, tmp_path, how)
    assert seen == [4 * 10**9] * 2
