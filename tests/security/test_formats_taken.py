"""Of all that ffmpeg can open, the listed containers and codecs are opened, and nothing else. With real files."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import av
import pytest

from callsheet.media.allowed_formats import DECODERS, DEMUXERS, OWN_DEMUXERS, is_codec_allowed
from callsheet.media.errors import CorruptInput, MediaError, NotMedia, UnsupportedInput
from callsheet.media.ffmpeg import Ffmpeg, Input, Work
from callsheet.media.probe import probe
from callsheet.media.sampling.decode import Order, look
from callsheet.media.sampling.records import Sampling
from callsheet.media.sniff import KINDS
from callsheet.media.spec import OutputSpec
from callsheet.media.transcode import transcode
from tests.media.corpus import picture, sound

LISTS = {
    "hls",
    "dash",
    "concat",
    "sdp",
    "rtsp",
    "image2",
    "image2pipe",
    "imf",
    "lavfi",
    "tedcaptions",
    "vobsub",
    "webm_dash_manifest",
}
# a name, and how ffmpeg makes it: in a container that is taken, coded as nothing that is
UNLISTED_CODECS = {
    "magicyuv.avi": ("magicyuv", f"{picture(1)} -c:v magicyuv"),
    "magicyuv.mkv": ("magicyuv", f"{picture(1)} -c:v magicyuv"),
    "magicyuv.mov": ("magicyuv", f"{picture(1)} -c:v magicyuv"),
    "utvideo.avi": ("utvideo", f"{picture(1)} -c:v utvideo"),
    "cinepak.mov": ("cinepak", f"{picture(1, '64x48', '5')} -c:v cinepak"),
    "qtrle.mov": ("qtrle", f"{picture(1)} -c:v qtrle"),
    "snow.mkv": ("snow", f"{picture(1, '64x48', '5')} -c:v snow -strict -2"),
    "wavpack.mka": ("wavpack", f"{sound(1)} -c:a wavpack"),
    "tta.mka": ("tta", f"{sound(1)} -c:a tta"),
}
# in a container that is not taken, whatever is inside
UNLISTED_CONTAINERS = {
    "video.nut": f"{picture(1)} -c:v mpeg4",
    "sound.au": f"{sound(1)}",
    "sound.wv": f"{sound(1)} -c:a wavpack",
    "sound.tta": f"{sound(1)} -c:a tta",
    "video.rm": f"{picture(1, '176x144')} -c:v rv20",
    "picture.tiff": f"{picture(1)} -frames:v 1",
    "picture.bmp": f"{picture(1)} -frames:v 1",
    "raw.h264": f"{picture(1)} -c:v libx264",
    "raw.dv": f"{picture(1, '720x576')} -c:v dvvideo -pix_fmt yuv420p",
    "smacker.gxf": f"{picture(1, '720x576')} -c:v mpeg2video",
}


def made(how: Ffmpeg, folder: Path, name: str, words: str) -> Path:
    path = folder / name
    command = [str(how.binary.path), "-v", "error", "-y", *words.split(), str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=60)
    return path


def test_every_container_that_is_known_by_its_bytes_is_listed_and_no_list_of_files_is() -> None:
    assert {kind.demuxer for kind in KINDS} == DEMUXERS
    assert not LISTS & (DEMUXERS | OWN_DEMUXERS)
    assert not {"magicyuv", "utvideo", "cinepak", "wavpack"} & set(DECODERS)


def test_all_listed_decoders_are_names_that_ffmpeg_knows(how: Ffmpeg) -> None:
    run = subprocess.run([how.binary.path, "-hide_banner", "-decoders"], capture_output=True, check=True, text=True)
    known_names = {
        line.split()[1] for line in run.stdout.splitlines() if line.startswith(" ") and len(line.split()) > 1
    }
    assert set(DECODERS) - known_names <= {
        "libaom-av1",
        "libopencore_amrnb",
        "libopencore_amrwb",
        "libvorbis",
        "libopus",
        "webp_anim",
    }


@pytest.mark.parametrize("name", UNLISTED_CODECS)
async def test_a_codec_that_is_not_listed_is_refused_by_name(how: Ffmpeg, tmp_path: Path, name: str) -> None:
    codec, words = UNLISTED_CODECS[name]
    path, out = made(how, tmp_path, name, words), tmp_path / "out"
    out.mkdir()
    with pytest.raises(UnsupportedInput, match=rf"coded as {codec}, which is not taken; send one of .*(h264|opus)"):
        await transcode(path, OutputSpec("a.mp4", "mp4"), out, how)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("name", ["magicyuv.avi", "cinepak.mov", "tta.mka"])
async def test_ffmpeg_itself_opens_no_decoder_that_is_not_listed(how: Ffmpeg, tmp_path: Path, name: str) -> None:
    """The second wall is tested without the probe before it."""
    path, out = made(how, tmp_path, name, UNLISTED_CODECS[name][1]), tmp_path / "out"
    out.mkdir()
    demuxer = {"avi": "avi", "mov": "mov", "mka": "matroska"}[path.suffix[1:]]
    with pytest.raises(MediaError):
        await how.run(Work((Input(path, demuxer),), ("-f", "null", "-")), out)
    made(how, tmp_path, "again.mkv", f"-i {path}")  # without the list it is opened


def test_sampling_decodes_nothing_that_is_not_listed(how: Ffmpeg, tmp_path: Path) -> None:
    """PyAV's second wall is tested without the preceding probe and the surrounding sandbox."""
    (tmp_path / "frames").mkdir()
    for name, words, is_taken in (
        ("taken.avi", f"{picture(1)} -c:v mjpeg", True),
        ("refused.avi", UNLISTED_CODECS["magicyuv.avi"][1], False),
    ):
        path = made(how, tmp_path, name, words)
        order = Order(str(path), "avi", 0, str(tmp_path / "frames"), 10**6, 8, 1, Sampling())
        assert bool(sampled(order)) is is_taken


def sampled(order: Order) -> int:
    texts: list[dict[str, Any]] = []
    try:
        look(order, texts.append)
    except av.FFmpegError:
        return 0
    return int(texts[-1]["done"]["sampled"])


@pytest.fixture
def how() -> Ffmpeg:
    return Ffmpeg.default()


@pytest.mark.parametrize("name", UNLISTED_CONTAINERS)
async def test_a_container_that_is_not_listed_is_refused(how: Ffmpeg, tmp_path: Path, name: str) -> None:
    path = made(how, tmp_path, name, UNLISTED_CONTAINERS[name])
    with pytest.raises((NotMedia, UnsupportedInput, CorruptInput)):
        await probe(path)


@pytest.mark.parametrize("demuxer", sorted(LISTS))
def test_no_run_is_made_with_a_demuxer_that_is_not_listed(how: Ffmpeg, demuxer: str) -> None:
    with pytest.raises(UnsupportedInput, match=f"the demuxer {demuxer} is never used"):
        how.command(Work((Input(Path("/x"), demuxer),), ()))


def test_what_is_taken_depends_on_the_kind_of_stream() -> None:
    assert is_codec_allowed("video", "h264")
    assert not is_codec_allowed("audio", "h264")
    assert not is_codec_allowed("video", "unknown")
    assert not is_codec_allowed("data", "bin_data")
