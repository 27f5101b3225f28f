"""Pauses between tries."""

from __future__ import annotations

from callsheet.net.backoff import doubled, pause_after


def test_pauses_double_up_to_the_longest() -> None:
    assert [pause_after(n, 0.5, 3) for n in range(5)] == [0.5, 1, 2, 3, 3]
    assert pause_after(10**6, 0.5, 3) == 3


def test_jitter_takes_away_no_more_than_its_fraction() -> None:
    assert all(2 <= pause_after(2, 1, 60, jitter=0.5) <= 4 for _ in range(500))
    assert min(pause_after(2, 1, 60, jitter=1) for _ in range(500)) < 1


def test_a_pause_that_is_remembered_doubles_in_the_same_way() -> None:
    pauses = [doubled(0, 30, 100)]
    pauses += [doubled(pauses[-1], 30, 100), doubled(60, 30, 100)]
    assert pauses == [30, 60, 100]
