"""The header Retry-After."""

from __future__ import annotations

import math
from email.utils import formatdate

import pytest

from callsheet.net.retry_after import retry_after_s

NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("0", 0), (" 0 ", 0), ("0.5", 0.5), ("99999", 99_999), ("3.", 3)]
)
def test_a_number_is_seconds(text: str, seconds: float) -> None:
    assert retry_after_s(text) == retry_after_s(text, NOW_S) == seconds


def test_a_date_counts_from_now_and_never_backwards() -> None:
    assert retry_after_s(formatdate(NOW_S + 60, usegmt=True), NOW_S) == 60
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT", NOW_S) == 0
    assert retry_after_s("Wed, 21 Oct 2099 07:28:00 GMT") is None  # would be judged by this machine's clock


@pytest.mark.parametrize("text", ["", "soon", "-3", "nan", "inf", "1e3", "\u0663", "Wed, 99 Oct 2015 07:28:00 GMT"])
def test_anything_else_says_nothing(text: str) -> None:
    assert retry_after_s(text) is None
    assert retry_after_s(text, NOW_S) is None


def test_a_number_of_any_length_is_finite() -> None:
    wait_s = retry_after_s("9" * 5000, NOW_S)
    assert wait_s is None or math.isfinite(wait_s)
