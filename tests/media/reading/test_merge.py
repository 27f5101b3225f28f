from __future__ import annotations

import itertools
import os
import random
import time

import hypothesis
import pytest
from hypothesis import strategies as st

from callsheet.media.reading.merge import merge
from callsheet.media.reading.normalise import normalized, text_hash
from callsheet.media.reading.records import Box, Range, Seen
from callsheet.media.reading.tracks import at_same_place

from .noise import noisy, saw

DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
PERIOD_MS = 100
CAPTIONS = ["Welcome to the workshop", "Today we build a table", "Measure twice, cut once", "Sand every edge smooth"]
LEFT: Box = (40, 80, 300, 30)
RIGHT: Box = (700, 80, 300, 30)


def merged(*seen: Seen, duration_ms: int = 60_000) -> list[Range]:
    return merge(seen, period_ms=PERIOD_MS, duration_ms=duration_ms)


def times(ranges: list[Range]) -> list[tuple[str, int, int]]:
    return [(one.text, one.t_start, one.t_end) for one in ranges]


@pytest.mark.parametrize("seed", range(20))
def test_noisy_readings_of_four_captions_are_four_ranges_and_not_sixteen(seed: int) -> None:
    seen = noisy(CAPTIONS, seed)
    exact = sum(1 for _ in itertools.groupby(seen, key=lambda one: text_hash(one.text)))
    ranges = merged(*seen)
    assert exact >= 10
    assert len(ranges) <= 7
    assert {one.text for one in ranges} >= set(CAPTIONS)
    assert sum(one.seen for one in ranges) == len(seen)


def test_with_mild_noise_nearly_all_captions_are_one_range() -> None:
    counts = [len(merged(*noisy(CAPTIONS, seed))) for seed in range(100)]
    assert sum(counts) <= 4.2 * len(counts)


@pytest.mark.parametrize(
    "texts",
    [
        ["Price $19.99", "Price $24.50"],
        ["Price $19.99 only today", "Price $19.98 only today"],
        ["Step 1 of 5", "Step 2 of 5", "Step 3 of 5"],
        ["Appendix A", "Appendix B"],
        ["The door is open now", "The door is shut now"],
        ["And so", "And so we", "And so we go", "And so we go home"],
    ],
)
def test_texts_that_look_alike_stay_apart(texts: list[str]) -> None:
    seen = [saw(text, 400 * at, 400 * (at + 1)) for at, text in enumerate(texts)]
    assert times(merged(*seen)) == [(text, 400 * at, 400 * (at + 1)) for at, text in enumerate(texts)]


def test_a_running_counter_is_as_many_texts_as_it_has_values() -> None:
    seen = [saw(f"Frame {at} of 40", 100 * at, 100 * (at + 1)) for at in range(40)]
    assert [one.text for one in merged(*seen)] == [one.text for one in seen]


def test_lines_of_code_that_differ_in_a_letter_are_two_tracks() -> None:
    first, second = (40, 100, 400, 24), (40, 130, 400, 24)
    seen = [
        saw(text, 500 * at, 500 * (at + 1), box)
        for at in range(6)
        for text, box in (("left = total", first), ("lift = total", second))
    ]
    assert sorted(times(merged(*seen))) == [("left = total", 0, 3000), ("lift = total", 0, 3000)]


def test_a_digit_that_is_misread_for_a_moment_is_no_other_text() -> None:
    seen = [saw("Gate 38 closes", 0, 2000), saw("Gate 88 closes", 2000, 2100), saw("Gate 38 closes", 2100, 4000)]
    assert times(merged(*seen)) == [("Gate 38 closes", 0, 4000)]
    seen[1] = saw("Gate 88 closes", 2000, 3500)
    assert len(merged(seen[0], seen[1], saw("Gate 38 closes", 3500, 4000))) == 3


def test_a_line_that_loses_words_for_a_while_goes_on() -> None:
    whole, part = "Where did you leave the keys", "Where did you leave the"
    assert times(merged(saw(whole, 0, 1000), saw(part, 1000, 3000), saw(whole, 3000, 5000))) == [(whole, 0, 5000)]


def test_a_word_that_is_read_now_and_then_was_there_all_the_time() -> None:
    whole, part = "Dr. Helena Brandt", "Dr. Helena"
    seen = [saw(part, 0, 1600), saw(whole, 1600, 2100), saw(part, 2100, 3200), saw(whole, 3200, 3500)]
    assert times(merged(*seen)) == [(whole, 0, 3500)]


def test_words_that_go_while_the_rest_stays_were_lost_and_words_that_come_are_new() -> None:
    whole, part = saw("Museum open until ten", 0, 800), saw("Museum open", 800, 3000, (200, 600, 420, 48))
    assert times(merged(whole, part)) == [("Museum open until ten", 0, 3000)]
    grown = part._replace(t_start=0, t_end=2200), whole._replace(t_start=2200, t_end=3000)
    assert times(merged(*grown)) == [("Museum open", 0, 2200), ("Museum open until ten", 2200, 3000)]
    elsewhere = part._replace(box=(400, 600, 420, 48))
    assert len(merged(whole, elsewhere)) == 2


def test_a_line_that_is_only_coming_belongs_to_the_whole() -> None:
    assert times(merged(saw("Once there was a", 800, 1000), saw("Once there was a harbor", 1000, 4000))) == [
        ("Once there was a harbor", 800, 4000)
    ]


@pytest.mark.parametrize(("gap_ms", "count"), [(0, 1), (200, 1), (201, 2), (1200, 2)])
def test_text_that_is_missed_for_two_samples_was_there_all_the_time(gap_ms: int, count: int) -> None:
    assert len(merged(saw("Press any key", 0, 1000), saw("Press any key", 1000 + gap_ms, 3000))) == count


def test_text_ends_with_the_first_sample_without_it_and_never_after_the_video() -> None:
    ranges = merged(saw("Game over", 0, 1200), saw("Game over", 1200, 5000), duration_ms=3210)
    assert times(ranges) == [("Game over", 0, 3210)]
    assert merged(saw("At the very end", 3300, 3400), duration_ms=3210)[0].t_end == 3210
    assert merged(saw("No length", 100, 100))[0].t_end == 200
    assert merged(saw("No duration is known", 0, 99_000), duration_ms=0)[0].t_end == 99_000


def test_the_same_words_at_two_places_are_two_ranges() -> None:
    seen = [saw("OK", 500 * at, 500 * (at + 1), box) for at in range(4) for box in (LEFT, RIGHT)]
    assert [(one.box, one.t_start, one.t_end) for one in merged(*seen)] == [(LEFT, 0, 2000), (RIGHT, 0, 2000)]


def test_text_that_scrolls_is_one_range_even_when_it_is_misread() -> None:
    names = ["Directed by Ana Lopes", "Written by Karl Weiss", "Music by Iris Novak", "Edited by Tom Hale"]
    read = [[name, name.replace("i", "l", 1), name.replace("e", "c", 1)] for name in names]
    seen = [
        saw(
            read[line][(frame + line) % 3], 200 * frame, 200 * (frame + 1), (400, 600 + 60 * line - 40 * frame, 420, 40)
        )
        for frame in range(12)
        for line in range(4)
    ]
    assert sorted(times(merged(*seen))) == sorted((name, 0, 2400) for name in names)


HEADLINES = (
    "Storm warning for the northern coast",
    "Trains resume at noon",
    "Museum stays open until ten",
    "Council votes on the new bridge tonight",
)


def ticker(headlines: tuple[str, ...], width: int, step: int = 240) -> list[Seen]:
    """What frames, one every 500 ms, show of lines that pass from right to left, cut at the edges by the letter."""
    letter, height, seen = 20, 36, []
    starts = itertools.accumulate((len(text) * letter + 160 for text in headlines), initial=width)
    places = list(zip(headlines, starts, strict=False))
    end = places[-1][1] + len(headlines[-1]) * letter
    for frame, moved_row in enumerate(range(0, end, step)):
        for text, start in places:
            first = max(0, -(start - moved_row) // letter)
            letters = text[first : max(0, (width - start + moved_row) // letter)]
            if any(sign.isalnum() for sign in letters):
                left = start - moved_row + first * letter
                cut = min(width - max(left, 0), len(letters) * letter)
                seen.append(saw(letters.strip(), 500 * frame, 500 * (frame + 1), (max(left, 0), 640, cut, height)))
    return seen


@pytest.mark.parametrize("step", [100, 240, 330])
def test_a_ticker_of_four_headlines_is_four_texts(step: int) -> None:
    wide = [*ticker(HEADLINES, 1280, step), saw("LIVE", 0, 60_000, (1200, 30, 80, 30))]
    ranges = merged(*wide)
    assert sorted(one.text for one in ranges) == sorted((*HEADLINES, "LIVE"))
    assert len(wide) > 15


def test_a_region_that_two_passes_read_is_one() -> None:
    twice = saw("Sand every edge smooth", 0, 500, (202, 601, 870, 47), 0.8)
    assert len(merged(saw("Sand every edge smooth", 0, 500), twice)) == 1
    assert len(merged(saw("Sand every edge", 0, 500, (202, 601, 600, 47)), saw("Sand every edge smooth", 0, 500))) == 1


def test_language_and_confidence_are_those_of_most_of_the_time() -> None:
    sure = saw("Schöne Grüße", 0, 3000, confidence=0.9)._replace(language="deu")
    unsure = saw("Schöne Grüße", 3000, 4000, confidence=0.5)._replace(language=None)
    (one,) = merged(sure, unsure)
    assert (one.language, one.confidence, one.seen) == ("deu", 0.8, 2)
    assert (one.normalized_text, one.text_hash) == (normalized("schöne grüße"), text_hash("SCHÖNE GRÜSSE"))


def test_text_without_letters_and_nothing_at_all() -> None:
    assert merged() == []
    assert merged(saw(" \t ", 0, 100)) == []
    assert times(merged(saw("— —", 0, 100), saw("— —", 100, 200))) == [("— —", 0, 200)]


words = st.sampled_from(["step", "1", "2", "l", "price", "$19.99", "of", "home", "harne", "the", "l9.99"])
boxes = st.sampled_from([LEFT, RIGHT, (45, 82, 290, 28), (40, 120, 300, 30), (40, 80, 150, 30), (0, 0, 0, 0)])
a_seen = st.builds(
    lambda text, at, lasts, box, confidence, language: Seen(
        "", 100 * at, 100 * (at + lasts), " ".join(text), confidence, box, language
    ),
    st.lists(words, min_size=1, max_size=4),
    st.integers(0, 12),
    st.sampled_from([1, 1, 1, 2, 5, 9]),
    boxes,
    st.floats(0, 1),
    st.sampled_from(["eng", "deu", None]),
)


@hypothesis.settings(
    max_examples=2000 if DEEP else 120, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
@hypothesis.given(st.lists(a_seen, max_size=14), st.randoms(use_true_random=False))
def test_merging_again_changes_nothing_and_order_does_not_matter(seen: list[Seen], chance: random.Random) -> None:
    ranges = merge(seen, period_ms=PERIOD_MS, duration_ms=2000)
    assert merge([one.as_seen() for one in ranges], period_ms=PERIOD_MS, duration_ms=2000) == ranges
    out_of_order = chance.sample(seen, len(seen))
    assert merge(out_of_order, period_ms=PERIOD_MS, duration_ms=2000) == ranges
    assert sum(one.seen for one in ranges) == len(seen)
    assert all(0 <= one.t_start < one.t_end <= 2000 for one in ranges)


@hypothesis.settings(
    max_examples=1000 if DEEP else 80, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
@hypothesis.given(st.lists(a_seen, max_size=14))
def test_ranges_of_one_text_at_one_place_do_not_overlap_nor_touch(seen: list[Seen]) -> None:
    ranges = merge([one._replace(box=LEFT) for one in seen], period_ms=PERIOD_MS, duration_ms=0)
    for one, other in itertools.combinations(ranges, 2):
        if one.text_hash == other.text_hash and at_same_place(one.box, other.box):
            assert other.t_start - one.t_end > 2 * PERIOD_MS


def test_the_work_grows_with_the_detections_and_not_with_their_square() -> None:
    chance, frames = random.Random(7), 1000 if DEEP else 300
    lines = [f"line {chance.randrange(10**6)} says something longer" for _ in range(50)]
    seen = []
    for frame in range(frames):
        lines[chance.randrange(50)] = f"line {chance.randrange(10**6)} says something longer"
        for row, text in enumerate(lines):
            read = text.replace("l", "1", 1) if chance.random() < 0.2 else text
            seen.append(saw(read, 500 * frame, 500 * (frame + 1), (100, 20 * row, 500, 18)))
    began_s = time.process_time()
    ranges = merge(seen, period_ms=PERIOD_MS, duration_ms=500_000)
    assert frames <= len(ranges) <= 1.1 * frames + 50
    assert time.process_time() - began_s < 60  # 50,000 take some 2 s; were it the square, it would be an hour


def test_scraps_of_a_ticker_belong_to_what_passes_and_other_rows_keep_theirs() -> None:
    """Edges leave letters that are read as others, and lines are torn while they pass."""
    whole = [saw(HEADLINES[1], 500 * at, 500 * (at + 1), (900 - 100 * at, 640, 400, 36)) for at in range(1, 7)]
    scraps = [
        saw("Trainz res", 0, 500, (1060, 640, 210, 36)),
        saw("resume at noon", 1000, 1500, (880, 640, 280, 36)),
        saw("joon", 3500, 4000, (0, 640, 70, 36)),
    ]
    still = [saw("Total", 0, 4000, (1200, 100, 80, 36)), saw("Total of the year", 0, 4000, (300, 100, 340, 36))]
    result = merged(*whole, *scraps, *still)
    assert sorted(times(result)) == [
        ("Total", 0, 4000),
        ("Total of the year", 0, 4000),
        (HEADLINES[1], 0, 4000),
    ]
