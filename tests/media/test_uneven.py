"""Frames at uneven times: whatever stands for long is as long, in playlists, segments, clips and samples."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path

import av
import pytest

from callsheet.media.arguments import has_long_frames
from callsheet.media.ffmpeg import Ffmpeg
from callsheet.media.hls import INDEX, end_playlist, make_hls, read_playlist
from callsheet.media.probe import probe
from callsheet.media.sampling.records import Sampling
from callsheet.media.spec import OutputSpec
from callsheet.media.transcode import transcode
from tests.media.made_up.odd import number_in
from tests.media.made_up.uneven import UNEVEN, uneven_in
from tests.media.sampling.kit import sampled

FRAME_S = 0.05  # a little more than the shortest usual one
FILES = [(name, suffix) for name in UNEVEN if name != "reordered" for suffix in ("mp4", "mkv")]


def pictures(path: Path) -> list[tuple[float, int]]:
    """When each picture begins, and its number."""
    with av.open(str(path)) as container:
        return [(float(frame.time or 0.0), number_in(frame.to_image())) for frame in container.decode(video=0)]  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(("name", "suffix"), FILES)
async def test_hls_has_the_times_of_the_source(tmp_path: Path, how: Ffmpeg, name: str, suffix: str) -> None:
    film = UNEVEN[name]
    media = await probe(uneven_in(tmp_path, name, suffix))
    assert media.duration_s == pytest.approx(film.length_s, abs=0.03)
    hls = await make_hls(media, tmp_path / "hls", how, OutputSpec("hls", "hls", height=180))
    assert hls.duration_s == pytest.approx(film.length_s, abs=0.03)
    playlist = read_playlist(hls.folder / INDEX)
    begins = [0.0, *accumulate(playlist.lengths)]
    zero_s = pictures(hls.folder / playlist.segments[0])[0][0]
    for begin, end, segment in zip(begins, begins[1:], playlist.segments, strict=False):
        pictures_shown = [(at - zero_s, number) for at, number in pictures(hls.folder / segment)]
        assert pictures_shown[0][0] == pytest.approx(begin, abs=FRAME_S), "a segment begins when the playlist says so"
        assert pictures_shown[-1][0] < end + FRAME_S
        for at, number in pictures_shown:
            expected = {film.shown_at(at - FRAME_S), film.shown_at(at + FRAME_S)}
            assert min(expected) <= number <= max(expected), at
    target = next(line for line in (hls.folder / INDEX).read_text().splitlines() if "TARGETDURATION" in line)
    assert int(target.partition(":")[2]) >= round(max(playlist.lengths))
    assert max(playlist.lengths) < 8.1


CLIPS = {
    "gaps": ((3, 5), (1, 7)),
    "gaps_with_sound": ((3, 7),),
    "holds": ((1, 7), (4, 6)),
    "late": ((1, 3),),
    "late_picture": ((0, 3), (2, 7)),
    "one_then_sixty": ((3.5, 6),),
    "three_rates": ((2, 8),),
    "seldom": ((8, 20), (35, 39)),
}


@pytest.mark.parametrize(("name", "suffix"), FILES)
async def test_a_clip_is_as_long_as_was_asked_and_shows_what_was_there(
    tmp_path: Path, how: Ffmpeg, name: str, suffix: str
) -> None:
    film = UNEVEN[name]
    media = await probe(uneven_in(tmp_path, name, suffix))
    for start_s, end_s in CLIPS[name]:
        spec = OutputSpec(f"{start_s}.mp4", "mp4", height=180, start_s=start_s, end_s=end_s)
        clip = await transcode(media, spec, tmp_path, how)
        assert clip.duration_s == pytest.approx(end_s - start_s, abs=FRAME_S)
        pictures_shown = pictures(clip.path)
        assert pictures_shown[0][0] == pytest.approx(0, abs=FRAME_S)
        for at, number in pictures_shown:
            expected = {film.shown_at(start_s + at - FRAME_S), film.shown_at(start_s + at + FRAME_S)}
            assert min(expected) <= number <= max(expected), at


@pytest.mark.parametrize(
    ("name", "suffix"), [("gaps", "mp4"), ("holds", "mkv"), ("seldom", "mp4"), ("late_picture", "mkv")]
)
async def test_what_stands_for_long_is_sampled_and_lasts(tmp_path: Path, name: str, suffix: str) -> None:
    film = UNEVEN[name]
    path = uneven_in(tmp_path, name, suffix)
    (tmp_path / "frames").mkdir()
    outcome = await sampled(path, tmp_path / "frames", Sampling(dedupe_threshold=1.0))
    assert outcome.sampled.duration_ms == pytest.approx(film.length_s * 1000, abs=30)
    assert outcome.sampled.gaps == ()
    zero = min(film.starts[0], (film.tone or film.starts)[0])
    spans = {frame.timestamp_ms: frame.until_ms for frame in outcome.kept}
    edges = [*film.starts, film.end]
    for begin, end in pairwise(edges):
        if end - begin > 0.3:
            at = round((begin - zero) * 1000)
            assert spans[at] == pytest.approx((end - zero) * 1000, abs=1), f"the frame at {at} ms stands until {end}"


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
async def test_pictures_that_are_not_decoded_in_their_order_are_all_shown(
    tmp_path: Path, how: Ffmpeg, suffix: str
) -> None:
    """The head of an MP4 adds up lengths in the order of decoding: here it ends before the last picture begins."""
    path = uneven_in(tmp_path, "reordered", suffix, is_reordered=True)
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    end_s = max(float((frame.pts + (frame.duration or 0)) * (frame.time_base or 0)) for frame in frames)  # type: ignore[operator]
    media = await probe(path)
    assert media.duration_s == pytest.approx(end_s, abs=0.002)
    hls = await make_hls(media, tmp_path / "hls", how, OutputSpec("hls", "hls", height=180))
    assert hls.duration_s == pytest.approx(end_s, abs=0.03)
    playlist = read_playlist(hls.folder / INDEX)
    pictures_shown = [picture for segment in playlist.segments for picture in pictures(hls.folder / segment)]
    for start_s, number in zip(UNEVEN["reordered"].starts, range(99), strict=False):
        assert any(
            abs(at - pictures_shown[0][0] - start_s) < FRAME_S and seen == number for at, seen in pictures_shown
        ), start_s
    (tmp_path / "frames").mkdir()
    outcome = await sampled(path, tmp_path / "frames", Sampling(dedupe_threshold=1.0))
    assert outcome.sampled.duration_ms == pytest.approx(end_s * 1000, abs=30)


def test_a_playlist_ends_when_the_source_does(tmp_path: Path) -> None:
    path = tmp_path / "a.m3u8"
    path.write_text("#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:6.000000,\na.ts\n#EXTINF:1.000000,\nb.ts\n")
    end_playlist(path, 14.6)
    assert path.read_text() == "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:6.000000,\na.ts\n#EXTINF:8.600000,\nb.ts\n"
    end_playlist(path, 5.0)
    assert "#EXTINF:0.001000,\nb.ts" in path.read_text()
    (tmp_path / "empty").write_text("#EXTM3U\n")
    end_playlist(tmp_path / "empty", 5.0)


async def test_steady_sources_are_left_alone(tmp_path: Path) -> None:
    assert not has_long_frames(await probe(uneven_in(tmp_path, "three_rates", "mp4")))
    assert has_long_frames(await probe(uneven_in(tmp_path, "holds", "mp4")))
