from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from callsheet.media.arguments import arguments_for, input_for
from callsheet.media.binaries import Binary
from callsheet.media.errors import InvalidOutput, NoSuchStream
from callsheet.media.output import Loudness, check_duration, expected_s, read_report
from callsheet.media.probe import Media, Stream
from callsheet.media.sniff import MP4
from callsheet.media.spec import FORMATS, GB, OutputSpec, check_for, check_spec, output_limit

ENCODERS = frozenset(
    name for form in FORMATS.values() for names in (form.audio, *form.video.values()) for name in names
)
FULL = Binary(Path("/ffmpeg"), "8.1.3", ENCODERS, frozenset({"zscale", "tonemap"}))
VIDEO = Stream(0, "video", "h264", 0.0, 10.0, width=1920, height=1080, pixels=1920 * 1080, fps=25.0)
AUDIO = Stream(1, "audio", "aac", 0.0, 10.0, sample_rate_hz=44100, channels=2)
FILM = Media(Path("/in/a.mp4"), MP4, 1_000_000, 10.0, 0.0, 0, (VIDEO, AUDIO))
SONG = FILM._replace(streams=(AUDIO,))


def pairs(words: tuple[str, ...]) -> set[tuple[str, str]]:
    return set(pairwise(words))


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "hls"])
def test_every_format_names_its_encoders_and_strips_all_tags(name: str) -> None:
    words = arguments_for(OutputSpec("out", name), FILM, FULL)
    form = FORMATS[name]
    assert ("-c:a", form.audio[0]) in pairs(words)
    assert words[-3:] == ("-f", form.muxer, "out")
    assert {("-map_metadata", "-1"), ("-map_chapters", "-1")} <= pairs(words)
    assert ("-vn" in words) is (not form.video)


def test_a_wish_is_put_into_words() -> None:
    spec = OutputSpec(
        "a.mp4",
        "mp4",
        video_kbps=900,
        audio_kbps=64,
        sample_rate_hz=22050,
        channels=1,
        height=360,
        fps=12,
        end_s=4,
        start_s=1,
    )
    words = pairs(arguments_for(spec, FILM, FULL, gain_db=-2.5))
    assert {("-b:v", "900k"), ("-b:a", "64k"), ("-ar", "22050"), ("-ac", "1"), ("-t", "3.000000")} <= words
    assert {("-vf", "scale=640:360,setsar=1,fps=12"), ("-af", "volume=-2.500dB"), ("-fps_mode", "cfr")} <= words
    assert not any(flag == "-crf" for flag, _ in words)
    assert input_for(spec, FILM).options == ("-ss", "1.000000")


def test_pictures_for_bright_screens_are_mapped_where_that_can_be_done() -> None:
    bright = FILM._replace(streams=(VIDEO._replace(transfer=16), AUDIO))
    spec = OutputSpec("a.mp4", "mp4")
    assert any("tonemap" in word for word in arguments_for(spec, bright, FULL))
    assert not any("tonemap" in word for word in arguments_for(spec, bright, FULL._replace(filters=frozenset())))


@pytest.mark.parametrize(
    "spec",
    [
        OutputSpec("../a", "mp3"),
        OutputSpec("a/b", "mp3"),
        OutputSpec("-a", "mp3"),
        OutputSpec("a%d.ts", "mp3"),
        OutputSpec("", "mp3"),
        OutputSpec("a", "exe"),
        OutputSpec("a", "mp3", video_codec="h264"),
        OutputSpec("a", "mp4", video_codec="vp9"),
        OutputSpec("a", "mp4", width=1),
        OutputSpec("a", "mp4", width=100_000),
        OutputSpec("a", "mp4", fps=1000),
        OutputSpec("a", "mp4", video_kbps=-5),
        OutputSpec("a", "opus", sample_rate_hz=44100),
        OutputSpec("a", "mp3", audio_kbps=9999),
        OutputSpec("a", "mp3", channels=9),
        OutputSpec("a", "mp3", start_s=-1),
        OutputSpec("a", "mp3", start_s=float("nan")),
        OutputSpec("a", "mp3", start_s=3, end_s=2),
        OutputSpec("a", "mp3", loudness_lufs=3),
        OutputSpec("a", "mp3", loudness_lufs=float("nan")),
    ],
    ids=repr,
)
def test_what_cannot_be_right_is_refused_by_its_field(spec: OutputSpec) -> None:
    with pytest.raises(InvalidOutput) as excinfo:
        check_spec(spec)
    assert excinfo.value.code == "invalid_output"
    assert ":" in str(excinfo.value)


def test_what_this_source_or_this_ffmpeg_cannot_give_is_refused() -> None:
    silent = FILM._replace(streams=(VIDEO,))
    poor = FULL._replace(encoders=frozenset({"aac", "libx264"}))
    for spec, media, error in (
        (OutputSpec("a", "mp3"), silent, NoSuchStream),
        (OutputSpec("a", "mp4"), SONG, NoSuchStream),
        (OutputSpec("a", "mp4", loudness_lufs=-16), silent, NoSuchStream),
        (OutputSpec("a", "mp3", start_s=10), FILM, InvalidOutput),
    ):
        with pytest.raises(error):
            check_for(spec, media, FULL)
    for spec in (OutputSpec("a", "mp3"), OutputSpec("a", "webm", video_codec="av1")):
        with pytest.raises(InvalidOutput, match="no encoder"):
            check_for(spec, FILM, poor)
    check_for(OutputSpec("a", "hls"), SONG, FULL)


def test_an_output_may_be_twice_a_source_over_a_gigabyte() -> None:
    assert output_limit(GB) == 0
    assert output_limit(GB + 1) == 2 * GB + 2
    assert output_limit(GB, 500) == 500
    assert output_limit(3 * GB, 100 * GB) == 6 * GB


def test_the_gain_reaches_the_target_but_lets_no_peak_clip() -> None:
    assert Loudness(-26.0, -20.0, 3.0).gain_to(-16.0) == 10.0
    assert Loudness(-26.0, -5.0, 3.0).gain_to(-16.0) == 3.5
    assert Loudness(-10.0, 0.0, 3.0).gain_to(-16.0) == -6.0
    assert Loudness(-26.0, 0.0, 3.0).gain_to(-16.0) == -1.5
    assert Loudness(float("-inf"), float("-inf"), 0.0).gain_to(-16.0) == 0.0


def test_the_report_of_a_measurement_is_read() -> None:
    stderr = '[Parsed_loudnorm_0 @ 0x1]\n{\n"input_i" : "-23.10",\n"input_tp" : "-inf",\n"input_lra" : "0.00"\n}\n'
    assert read_report(stderr) == Loudness(-23.1, float("-inf"), 0.0)


def test_the_length_that_is_expected_is_that_of_the_streams_in_use() -> None:
    film = FILM._replace(streams=(VIDEO, AUDIO._replace(duration_s=4.0)))
    assert expected_s(film, OutputSpec("a", "mp3")) == 4.0
    assert expected_s(film, OutputSpec("a", "mp4")) == 10.0
    assert expected_s(film, OutputSpec("a", "mp4", start_s=2, end_s=5)) == 3.0
    check_duration(10.0, 10.4, FILM)
    for made_s in (0.0, 9.4, 10.6):
        with pytest.raises(Exception, match="expected"):
            check_duration(10.0, made_s, FILM)
