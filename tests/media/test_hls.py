from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from callsheet.media.errors import NoSuchStream, OutputIncomplete
from callsheet.media.ffmpeg import Ffmpeg
from callsheet.media.hls import INDEX, make_hls, read_playlist
from callsheet.media.poster import best_of, make_poster
from callsheet.media.spec import OutputSpec
from callsheet.media.transcode import transcode
from tests.media.corpus import Corpus


def first_picture(segment: Path) -> tuple[bool, float]:
    """Return whether a segment starts with a key frame, and its time."""
    with av.open(str(segment)) as container:
        packet = next(packet for packet in container.demux(video=0) if packet.pts is not None)
        assert packet.time_base is not None
        return packet.is_keyframe, float(packet.pts * packet.time_base)  # type: ignore[operator]


async def test_a_ladder_is_cut_at_key_frames_at_the_same_times(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    hls = await make_hls(await corpus.media("large.mp4"), tmp_path / "hls", how)
    assert [(size.name, size.width, size.height) for size in hls.renditions] == [
        ("480p", 854, 480),
        ("360p", 640, 360),
    ]
    starts = []
    for size in hls.renditions:
        playlist = read_playlist(hls.folder / f"{size.name}.m3u8")
        assert playlist.lengths == pytest.approx((6, 1), abs=0.1)
        pictures = [first_picture(hls.folder / name) for name in playlist.segments]
        assert all(is_key for is_key, _ in pictures)
        starts.append([at_s for _, at_s in pictures])
    assert all(one == pytest.approx(other, abs=0.001) for one, other in pairwise(starts))
    index = (hls.folder / INDEX).read_text()
    assert index.count("#EXT-X-STREAM-INF") == 2
    assert "854x480" in index
    assert hls.files[-1] == INDEX
    assert sorted(hls.files) == sorted(file.name for file in hls.folder.iterdir())
    assert hls.duration_s == pytest.approx(7, abs=0.2)
    assert all(name.startswith("segment_") for name in hls.files if name.endswith(".ts"))


async def test_one_size_is_one_playlist(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    output = await transcode(await corpus.media("rotated.mp4"), OutputSpec("video", "hls", height=160), tmp_path, how)
    assert (output.width, output.height, output.codec) == (90, 160, "h264")
    assert sorted(file.name for file in output.path.iterdir()) == [INDEX, "segment_00000.ts"]
    with av.open(str(output.path / "segment_00000.ts")) as container:
        assert (container.streams.video[0].width, container.streams.video[0].height) == (90, 160)


@pytest.mark.parametrize(
    ("name", "streams"), [("sound.mp3", ["audio"]), ("silent.mp4", ["video"]), ("tall.mp4", ["video"])]
)
async def test_one_kind_of_stream_is_enough(
    corpus: Corpus, how: Ffmpeg, tmp_path: Path, name: str, streams: list[str]
) -> None:
    hls = await make_hls(await corpus.media(name), tmp_path / "hls", how)
    segment = next(name for name in hls.files if name.endswith(".ts"))
    with av.open(str(hls.folder / segment)) as container:
        assert [stream.type for stream in container.streams] == streams


async def test_uneven_frames_are_not_filled_up(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    with av.open(str(corpus("uneven.mp4"))) as container:
        before = sum(packet.pts is not None for packet in container.demux(video=0))
    hls = await make_hls(await corpus.media("uneven.mp4"), tmp_path / "hls", how)
    with av.open(str(hls.folder / "segment_00000.ts")) as container:
        assert sum(packet.pts is not None for packet in container.demux(video=0)) == before


def test_a_playlist_that_is_not_whole_is_told(tmp_path: Path) -> None:
    playlist = tmp_path / "a.m3u8"
    (tmp_path / "s.ts").write_bytes(b"x")
    (tmp_path / "empty.ts").touch()
    for text in (
        "#EXTM3U\n#EXTINF:6.0,\ns.ts\n",
        "#EXTM3U\n#EXTINF:6.0,\ngone.ts\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXTINF:6.0,\nempty.ts\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXTINF:6.0,\n../s.ts\n#EXT-X-ENDLIST\n",
    ):
        playlist.write_text(text)
        with pytest.raises(OutputIncomplete):
            read_playlist(playlist)
    with pytest.raises(OutputIncomplete):
        read_playlist(tmp_path / "missing.m3u8")
    playlist.write_text("#EXTM3U\n#EXTINF:6.0,\ns.ts\n#EXT-X-ENDLIST\n")
    assert read_playlist(playlist).lengths == (6.0,)


async def test_a_poster_is_not_black_though_the_beginning_is(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    poster = await make_poster(await corpus.media("dark_first.mp4"), tmp_path, how)
    assert poster.at_s > 2
    assert not poster.is_dark
    with Image.open(poster.path) as picture:
        assert picture.format == "JPEG"
        assert picture.size == (320, 180) == (poster.width, poster.height)
        assert np.asarray(picture.convert("L")).std() > 20
    assert [file.name for file in tmp_path.iterdir()] == ["poster.jpg"]


async def test_a_black_video_has_a_poster_that_says_so(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    assert (await make_poster(await corpus.media("black.mp4"), tmp_path, how)).is_dark


async def test_sound_alone_has_no_poster(corpus: Corpus, how: Ffmpeg, tmp_path: Path) -> None:
    with pytest.raises(NoSuchStream):
        await make_poster(await corpus.media("sound.mp3"), tmp_path, how)
    with pytest.raises(OutputIncomplete):
        best_of({0.0: tmp_path / "missing.gray"})
