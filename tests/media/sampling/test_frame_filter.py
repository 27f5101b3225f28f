"""The frame filter on drawn samples, ten a second: the kept frames, and their start times."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from callsheet.media.sampling.frame_filter import HEIGHT, MOST_TIMES, UNSETTLED_S, WIDTH, FrameFilter, Gray, Verdict
from callsheet.media.sampling.records import Sampling

PERIOD_S = 0.1
CAPTION = (slice(130, 142), slice(100, 200))


@cache
def scene(seed: int = 1) -> Gray:
    """Return a picture with strong energy in every hashed wave, so that small changes do not alter the hash."""
    chance = np.random.default_rng(seed)
    waves = chance.choice([-1, 1], (8, 8)) * chance.uniform(0.5, 1, (8, 8))
    high, wide = (np.cos(np.pi * np.arange(8)[:, None] * (np.arange(n) + 0.5) / n) for n in (HEIGHT, WIDTH))
    picture = high.T @ waves @ wide
    gray: Gray = (70 + 120 * (picture - picture.min()) / np.ptp(picture)).astype(np.uint8)
    return gray


def with_caption(picture: Gray, seed: int, strength: float = 1.0) -> Gray:
    """Brighter and darker strokes where a caption would be."""
    strokes = np.random.default_rng(seed).permutation(np.repeat([-65.0, 65.0], 600)).reshape(12, 100)
    result = picture.copy()
    result[CAPTION] = (picture[CAPTION] + strength * strokes).astype(np.uint8)
    return result


def taken(samples: Iterable[Gray], options: Sampling = Sampling()) -> dict[float, Verdict]:  # noqa: B008
    """Verdicts by the time of their sample; the first sample is always kept and left out."""
    frame_filter = FrameFilter(options)
    verdicts = {round(at * PERIOD_S, 3): frame_filter.take(gray, at * PERIOD_S) for at, gray in enumerate(samples)}
    return {at: verdict for at, verdict in verdicts.items() if verdict is not None and at > 0}


def noisy(picture: Gray, seed: int) -> Gray:
    noise = np.random.default_rng(seed).integers(-2, 3, picture.shape)
    gray: Gray = np.clip(picture + noise, 0, 255).astype(np.uint8)
    return gray


def test_a_picture_that_stands_is_kept_once() -> None:
    assert taken([scene()] * 50) == {}
    assert taken(noisy(scene(), at) for at in range(50)) == {}


def test_another_picture_is_kept_at_once() -> None:
    frames = taken([scene(1)] * 10 + [scene(2)] * 10)
    assert [(at, verdict.since_s, verdict.why) for at, verdict in frames.items()] == [(1.0, 1.0, "hash")]


def test_a_caption_is_kept_when_it_rests_and_counts_from_when_it_came() -> None:
    frames = taken([scene()] * 10 + [with_caption(scene(), 1)] * 10 + [with_caption(scene(), 2)] * 10 + [scene()] * 10)
    assert [(at, round(verdict.since_s, 3)) for at, verdict in frames.items()] == [
        (1.1, 1.0),
        (2.1, 2.0),
        (3.1, 3.0),
    ]
    assert {verdict.why for verdict in frames.values()} == {"jump"}


def test_without_the_guard_captions_are_lost() -> None:
    samples = [with_caption(scene(), at // 10) for at in range(100)]
    assert len(taken(samples)) == 9
    assert taken(samples, Sampling(guard=False)) == {}


def test_captions_faster_than_the_interval_are_kept_no_faster() -> None:
    samples = [with_caption(scene(), at // 2) for at in range(100)]  # five a second
    assert 16 <= len(taken(samples)) <= 20
    assert 8 <= len(taken(samples, Sampling(guard_min_interval_s=1.0))) <= 10


def test_a_caption_that_has_to_wait_for_the_interval_still_counts_from_when_it_came() -> None:
    samples = [scene()] * 10 + [with_caption(scene(), 1)] * 2 + [with_caption(scene(), 2)] * 20
    frames = taken(samples)
    assert [(at, round(verdict.since_s, 3)) for at, verdict in frames.items()] == [
        (1.1, 1.0),
        (1.6, 1.2),
    ]


def test_text_that_fades_in_is_kept_when_it_is_all_there() -> None:
    steps = [min(1.0, at / 12) for at in range(40)]
    frames = taken([scene()] * 5 + [with_caption(scene(), 1, step) for step in steps])
    last = max(frames)
    assert last >= 1.7
    assert 0.5 <= frames[last].since_s < 1.7


def test_what_never_rests_is_kept_every_two_seconds() -> None:
    def sample(at: int) -> Gray:
        picture = scene().copy()
        picture[CAPTION] = np.random.default_rng(at).integers(0, 256, (12, 100))  # other strokes in each sample
        return picture

    frames = taken(sample(at) for at in range(100))
    assert [verdict.why for verdict in frames.values()].count("unsettled") >= 2
    assert max(after - before for before, after in pairwise([0.0, *frames, 9.9])) <= UNSETTLED_S + 2 * PERIOD_S
    assert len(frames) <= 7


def test_a_camera_in_a_corner_is_not_taken_for_text() -> None:
    def sample(at: int) -> Gray:
        picture = with_caption(scene(), at // 15)
        soft = 120 + 60 * np.sin(np.arange(40)[None, :] / 4 + at * 0.9) * np.cos(np.arange(20)[:, None] / 5)
        picture[5:25, 270:310] = soft.astype(np.uint8)
        return picture

    frames = taken(sample(at) for at in range(600))
    assert 39 <= len(frames) <= 59


def test_a_sample_that_stands_alone_is_at_rest() -> None:
    """At one frame per second neighbouring samples always differ."""
    frame_filter = FrameFilter(Sampling())
    results = []
    for at in range(10):
        if at:
            verdict = frame_filter.hold(float(at))
            results += [verdict] if verdict is not None else []
        verdict = frame_filter.take(with_caption(scene(), at), float(at))
        results += [verdict] if verdict is not None else []
    assert [verdict.since_s for verdict in results] == list(range(9))


def test_a_picture_that_stands_for_hours_takes_no_more_memory() -> None:
    frame_filter = FrameFilter(Sampling(guard=False))
    frame_filter.take(scene(), 0.0)
    changes = with_caption(scene(), 1)
    for at in range(1, 2 * MOST_TIMES):
        frame_filter.take(changes, at * PERIOD_S)
    assert len(frame_filter._times) <= MOST_TIMES


def test_forgetting_old_times_keeps_the_new_ones_right() -> None:
    frame_filter = FrameFilter(Sampling())
    count = MOST_TIMES + 100
    for at in range(count):
        assert (frame_filter.take(noisy(scene(), at % 7), at * PERIOD_S) is None) == (at > 0)
    assert len(frame_filter._times) < count
    assert frame_filter.take(with_caption(scene(), 1), count * PERIOD_S) is None
    verdict = frame_filter.take(with_caption(scene(), 1), (count + 1) * PERIOD_S)
    assert verdict is not None
    assert verdict.since_s == pytest.approx(count * PERIOD_S)


def test_the_size_is_one_that_can_be_hashed() -> None:
    assert WIDTH % 32 == HEIGHT % 32 == 0
