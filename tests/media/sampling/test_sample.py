"""Videos of which everything is known, through the real child in its box."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from callsheet.media.sampling.records import Sampling
from tests.media.made_up import ALL, CAPTIONS_40, MadeUp
from tests.media.made_up.films import FILMS
from tests.media.made_up.odd import number_in
from tests.media.sampling.kit import sampled
from tests.time_limits import DEEP

Video = Callable[[str], MadeUp]
EVERY = Sampling(dedupe_threshold=1.0)
LATE_MS = 150
FEW = ("outlined_caption", "fade", "small_captions", "price")
ODD_TIMES = ["ntsc", "vfr", "late_start", "one_fps", "fps_240", "late_mp4", "odd_size"]
SOFT = ("fade", "credits")  # no moment is the one at which their text comes


async def test_of_forty_captions_in_a_minute_none_is_lost_and_few_frames_are_kept(video: Video, tmp_path: Path) -> None:
    film = video(CAPTIONS_40)
    outcome = await sampled(film.path, tmp_path)
    assert outcome.found(film) >= 39
    assert len(outcome.kept) <= 60
    assert outcome.sampled.sampled == 600
    assert outcome.sampled.gaps == ()
    for frame in outcome.kept:
        frame.path.unlink()
    without = await sampled(film.path, tmp_path, Sampling(guard=False))
    assert without.found(film) <= 30
    assert not without.sampled.options.guard


@pytest.mark.parametrize("name", ALL if DEEP else FEW)
async def test_each_text_is_on_a_kept_frame_that_says_since_when_and_until_when(
    video: Video, tmp_path: Path, name: str
) -> None:
    film = video(name)
    outcome = await sampled(film.path, tmp_path)
    assert outcome.found(film) == len(film.truths)
    assert abs(outcome.sampled.duration_ms - film.duration_ms) <= 1
    if name not in SOFT:
        for truth in film.truths:
            frames = outcome.showing(truth)
            assert abs(frames[0].since_ms - truth.t_start_ms) <= LATE_MS, truth
            assert abs(frames[-1].until_ms - truth.t_end_ms) <= LATE_MS, truth


async def test_kept_frames_follow_one_another_without_holes(video: Video, tmp_path: Path) -> None:
    outcome = await sampled(video("two_at_once").path, tmp_path)
    frames = outcome.kept
    assert frames[0].since_ms == 0
    assert frames[-1].until_ms == outcome.sampled.duration_ms
    assert all(before.until_ms == after.since_ms for before, after in pairwise(frames))
    assert all(one.since_ms <= one.timestamp_ms < one.until_ms for one in frames)
    assert len(frames) == outcome.sampled.kept
    assert sorted(one.path.name for one in frames) == sorted(f"{one.timestamp_ms}.jpg" for one in frames)


@pytest.mark.parametrize("name", ODD_TIMES if DEEP else ODD_TIMES[:4])
async def test_a_frame_is_labelled_with_its_own_time(video: Video, tmp_path: Path, name: str) -> None:
    film = video(name)
    outcome = await sampled(film.path, tmp_path, EVERY)
    assert len(outcome.kept) >= min(20, len(film.times_ms))
    for frame in outcome.kept:
        with Image.open(frame.path) as picture:
            true_ms = film.times_ms[number_in(picture)]
        assert abs(frame.timestamp_ms - true_ms) <= 0.51  # it is rounded, and nothing else
        over, under = map(int, frame.pts.split("/"))
        assert 1000 * over / under == pytest.approx(true_ms, abs=0.02)


@pytest.mark.parametrize("name", ["ntsc", "vfr"])
async def test_the_sample_of_a_tick_is_the_first_frame_not_before_it(video: Video, tmp_path: Path, name: str) -> None:
    film = video(name)
    outcome = await sampled(film.path, tmp_path, EVERY)
    times_wanted: list[float] = []
    next_ms, pass_count = 0, None
    for time_ms in [*film.times_ms, None]:
        if pass_count is not None and (time_ms or film.duration_ms) >= next_ms + 100 - 1e-6:
            times_wanted.append(round(pass_count, 3))  # it stood over a tick that no other frame is at
        pass_count = time_ms
        if time_ms is not None and time_ms >= next_ms - 1e-6:
            times_wanted.append(round(time_ms, 3))
            next_ms, pass_count = (int(time_ms + 1e-6) // 100 + 1) * 100, None
    assert outcome.sampled.sampled == len(times_wanted)
    assert {one.timestamp_ms for one in outcome.kept} <= {round(time_ms) for time_ms in times_wanted}


@pytest.mark.parametrize("name", ["turned_90", "turned_180", "turned_270"] if DEEP else ["turned_90", "turned_270"])
async def test_a_turned_video_becomes_upright_frames(video: Video, tmp_path: Path, name: str) -> None:
    film = video(name)
    outcome = await sampled(film.path, tmp_path)
    assert [(one.width, one.height) for one in outcome.kept] == [(1280, 720)] * 2
    for frame in outcome.kept:
        pictures = np.asarray(FILMS["price"]().picture_at(frame.timestamp_ms / 1000), np.float64)
        with Image.open(frame.path) as picture:
            assert picture.size == (frame.width, frame.height)
            assert np.abs(np.asarray(picture, np.float64) - pictures).mean() < 4


async def test_a_hash_is_that_of_the_upright_picture(video: Video, tmp_path: Path) -> None:
    (tmp_path / "turned").mkdir()
    upright, turned_picture = video("price"), video("turned_90")
    one = await sampled(upright.path, tmp_path)
    other = await sampled(turned_picture.path, tmp_path / "turned")
    assert (int(one.kept[0].phash, 16) ^ int(other.kept[0].phash, 16)).bit_count() <= 8
    assert all(len(frame.phash) == 16 for frame in one.kept)


async def test_pixels_that_are_not_square_are_made_so(video: Video, tmp_path: Path) -> None:
    film = video("wide_pixels")
    frame = (await sampled(film.path, tmp_path)).kept[0]
    assert (frame.width, frame.height) == (film.width, film.height)


async def test_frames_are_kept_with_little_loss(video: Video, tmp_path: Path) -> None:
    outcome = await sampled(video("small_captions").path, tmp_path)
    Image.new("RGB", (64, 64)).save(tmp_path / "ninety.jpg", quality=90)
    with Image.open(tmp_path / "ninety.jpg") as ninety, Image.open(outcome.kept[0].path) as frame:
        assert frame.format == "JPEG"
        for table, least in zip(frame.quantization.values(), ninety.quantization.values(), strict=True):  # type: ignore[attr-defined]
            assert sum(table) <= sum(least)


async def test_ten_bits_for_bright_screens_are_read(video: Video, tmp_path: Path) -> None:
    film = video("hdr_10bit")
    outcome = await sampled(film.path, tmp_path)
    assert outcome.found(film) == 2
    with Image.open(outcome.kept[0].path) as picture:
        assert picture.mode == "RGB"
        assert np.ptp(np.asarray(picture)) > 128


async def test_at_one_frame_a_second_each_text_is_kept(video: Video, tmp_path: Path) -> None:
    film = video("one_fps_captions")
    outcome = await sampled(film.path, tmp_path)
    assert outcome.found(film) == len(film.truths)
    assert [one.since_ms for one in outcome.kept] == [truth.t_start_ms for truth in film.truths]


async def test_a_single_frame_is_kept(video: Video, tmp_path: Path) -> None:
    outcome = await sampled(video("one_frame").path, tmp_path)
    assert [(one.timestamp_ms, one.since_ms, one.until_ms) for one in outcome.kept] == [(0, 0, 40)]
