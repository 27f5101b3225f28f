from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from callsheet.media.reading.alike import Difference, difference
from callsheet.media.reading.consensus import consensus
from callsheet.media.reading.normalise import normalized

ONE_TEXT = (Difference.NONE, Difference.NOISE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Price $19.99", "Price $19.98"),
        ("Price $19.99 today only", "Price $24.50 today only"),
        ("Step 1 of 5", "Step 2 of 5"),
        ("Step 1 of 5", "Step l of 6"),
        ("00:14:59 elapsed", "00:15:00 elapsed"),
        ("x1 = compute(y)", "x2 = compute(y)"),
        ("Chapter 9 begins", "Chapter 10 begins"),
        ("Appendix A", "Appendix B"),
        ("World War II begins", "World War III begins"),
        ("Sign in to continue", "Sign on to continue"),
        ("Open on Monday morning", "Open on Sunday morning"),
        ("Amber morning", "Copper morning"),
        ("The door is open now", "The door is shut now"),
        ("chapter one of the long story", "chapter two of the long story"),
        ("Es gibt 3 neue Bilder", "Es gibt neue Bilder"),
    ],
)
def test_texts_that_look_alike_are_two(one: str, other: str) -> None:
    found = difference(normalized(one), normalized(other))
    assert found not in ONE_TEXT
    assert difference(normalized(other), normalized(one)) is found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Hello world", "He11o w0rld"),
        ("Step 1 of 5", "Step l of S"),
        ("Room 101 is open", "Room 1O1 is open"),
        ("modern learning", "modem leaming"),
        ("Measure twice, cut once", "Measure twice. cut once"),
        ("Today we build a table", "Todaywe build atable"),
        ("Welcome to the workshop", "Welcone to the workshap"),
        ("$ 19.99", "$19.99"),
        ("Größe und Maße prüfen", "Grösse und Masse prufen"),
    ],
)
def test_noise_is_no_other_text(one: str, other: str) -> None:
    assert difference(normalized(one), normalized(other)) in ONE_TEXT


def test_a_reading_that_lacks_words_is_a_part() -> None:
    assert difference("welcome to the", "welcome to the show") is Difference.PART
    assert difference("welcome to the sh", "welcome to the show") is Difference.PART


def test_each_word_is_voted_for_by_weight() -> None:
    readings = {"Welcome to the w0rkshop": 2.0, "Welcame to the workshop": 1.5, "Welcome ta the workshop": 1.0}
    assert consensus(readings) == "Welcome to the workshop"


def test_words_that_only_some_readings_have_stay_and_junk_goes() -> None:
    assert consensus({"On the table": 2.0, "On the kitchen table": 1.5}) == "On the kitchen table"
    assert consensus({"On the kitchen table": 5.0, "On the kitchen table ae": 1.0}) == "On the kitchen table"
    assert consensus({"On thekitchen table": 1.0, "On the kitchen table": 2.0}) == "On the kitchen table"


@hypothesis.given(
    st.dictionaries(st.text("ab1l ", min_size=1).map(str.strip).filter(bool), st.floats(0.1, 9), min_size=1)
)
def test_a_consensus_says_something(readings: dict[str, float]) -> None:
    said = consensus(readings)
    assert said
    assert set(said) <= set("".join(readings) + " ")
    assert consensus(dict(reversed(readings.items()))) == said
