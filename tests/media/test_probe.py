from __future__ import annotations

import sys
from pathlib import Path

import pytest

from callsheet.media import probe as probe_module
from callsheet.media.errors import CorruptInput, InputTooLarge, LimitReached, MediaError, TookTooLong
from callsheet.media.probe import Caps, probe
from tests.media.corpus import Corpus, png_head, y4m_head


async def test_a_video_with_sound_is_described(corpus: Corpus) -> None:
    media = await corpus.media("normal.mp4")
    assert media.video is not None
    assert media.audio is not None
    assert (media.video.codec, media.video.width, media.video.height, media.video.fps) == ("h264", 320, 180, 25)
    assert (media.audio.codec, media.audio.sample_rate_hz, media.audio.channels) == ("aac", 44100, 1)
    assert media.duration_s == pytest.approx(2, abs=0.05)
    assert media.size_bytes == corpus("normal.mp4").stat().st_size
    assert not media.video.is_variable
    assert not media.video.is_hdr


@pytest.mark.parametrize(
    ("name", "size_shown"),
    [("rotated.mp4", (180, 320)), ("odd.mkv", (321, 181)), ("wide_pixels.mp4", (262, 144)), ("tall.mp4", (404, 720))],
)
async def test_the_size_is_the_one_that_viewers_see(corpus: Corpus, name: str, size_shown: tuple[int, int]) -> None:
    media = await corpus.media(name)
    assert media.video is not None
    assert media.video.shown_size == size_shown


async def test_uneven_frames_late_starts_slow_and_bright_pictures_are_noticed(corpus: Corpus) -> None:
    uneven, late = await corpus.media("uneven.mp4"), await corpus.media("late.mp4")
    slow, bright = await corpus.media("slow.mp4"), await corpus.media("bright.mp4")
    assert uneven.video is not None
    assert uneven.video.is_variable
    assert late.start_s == pytest.approx(5, abs=0.1)
    assert late.duration_s == pytest.approx(2, abs=0.1)
    assert slow.video is not None
    assert slow.video.fps == 1
    assert slow.duration_s == pytest.approx(4)
    assert bright.video is not None
    assert bright.video.is_hdr


async def test_one_stream_alone_is_fine(corpus: Corpus) -> None:
    sound, silent = await corpus.media("sound.mp3"), await corpus.media("silent.mp4")
    assert sound.video is None
    assert sound.audio is not None
    assert sound.audio.codec == "mp3"
    assert silent.audio is None


async def test_the_cover_of_a_song_is_no_video(corpus: Corpus) -> None:
    media = await corpus.media("cover.mp3")
    assert [stream.kind for stream in media.streams] == ["audio", "video"]
    assert media.video is None
    assert media.duration_s == pytest.approx(2, abs=0.1)


async def test_a_length_that_no_head_tells_is_measured(corpus: Corpus) -> None:
    whole = corpus("normal.mkv").read_bytes()
    at = whole.index(b"\x44\x89\x88")  # the duration, eight bytes: made padding
    media = await probe(corpus.made("no_duration.mkv", whole[:at] + b"\xec\x40\x08" + whole[at + 3 :]))
    assert media.duration_s == pytest.approx(2.04, abs=0.05)


@pytest.mark.parametrize("content", [y4m_head(100_000, 100_000), png_head(100_000, 100_000)], ids=["y4m", "png"])
async def test_a_head_that_says_ten_gigapixels_is_refused(corpus: Corpus, content: bytes) -> None:
    with pytest.raises((InputTooLarge, LimitReached, CorruptInput)) as excinfo:
        await probe(corpus.made("giant", content))
    assert not excinfo.value.retryable


async def test_caps_hold(corpus: Corpus) -> None:
    normal, many = corpus("normal.mp4"), corpus("many.mka")
    for caps, path in (
        (Caps(pixels=320 * 180 - 1), normal),
        (Caps(duration_s=1), normal),
        (Caps(size_bytes=1000), normal),
        (Caps(), many),
    ):
        with pytest.raises(InputTooLarge) as excinfo:
            await probe(path, caps=caps)
        assert excinfo.value.code == "input_too_large"
    assert len((await probe(many, caps=Caps(streams=70))).streams) == 70


async def test_rubbish_behind_a_good_head_is_a_typed_error(corpus: Corpus) -> None:
    rubbish = bytes(range(256)) * 40
    for head in (
        b"\x1a\x45\xdf\xa3" + b"\x18\x53\x80\x67\x01" + b"\xff" * 7,
        b"OggS\0",
        b"FLV\x01",
        b"fLaC",
    ):
        with pytest.raises(MediaError) as excinfo:
            await probe(corpus.made("rubbish", head + rubbish))
        assert not excinfo.value.retryable


async def test_a_probe_that_hangs_is_ended(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child.py"
    child.write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(probe_module, "CHILD", child)
    monkeypatch.setattr(probe_module, "PROBE_LIMITS", probe_module.PROBE_LIMITS._replace(wall_s=0.5))
    with pytest.raises(TookTooLong):
        await probe(corpus("normal.mp4"))


async def test_no_decoder_is_loaded_into_our_own_process(corpus: Corpus) -> None:
    before = set(sys.modules)
    await probe(corpus("normal.mp4"))
    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] == "av"}
