from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from callsheet.media.reading.merge import Voice, consensus
from callsheet.media.reading.normalise import normalized
from callsheet.media.reading.text_similarity import Difference, difference

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
        ("Flight 545923 is boarding", "Flight 545928 is boarding"),
        ("Invoice INV20261 is paid", "Invoice INV20267 is paid"),
        ("Appendix A", "Appendix B"),
        ("World War II begins", "World War III begins"),
        ("Part VII of the story", "Part VIII of the story"),
        ("Part XIV of the story", "Part XIX of the story"),
        ("Sign in to continue", "Sign on to continue"),
        ("Open on Monday morning", "Open on Sunday morning"),
        ("Amber morning", "Copper morning"),
        ("The door is open now", "The door is shut now"),
        ("chapter one of the long story", "chapter two of the long story"),
        ("Es gibt 3 neue Bilder", "Es gibt neue Bilder"),
    ],
)
def test_texts_that_look_alike_are_two(one: str, other: str) -> None:
    result = difference(normalized(one), normalized(other))
    assert result not in ONE_TEXT
    assert difference(normalized(other), normalized(one)) is result


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


def test_a_number_that_is_missing_is_no_lost_word() -> None:
    assert difference("es gibt 3 neue bilder", "es gibt neue bilder") is Difference.DIGITS
    assert difference("es gibt neue bilder", "es gibt neue bilder heute") is Difference.PART


def test_a_reading_that_lacks_words_is_a_part() -> None:
    assert difference("welcome to the", "welcome to the show") is Difference.PART
    assert difference("dr helena", "dr helena brandt") is Difference.PART
    assert difference("dr", "dr helena") is Difference.ALL
    assert difference("welcome to the sh", "welcome to the show") is Difference.PART


def agreed(readings: dict[str, float], confidence: float = 0.9) -> str:
    return consensus({text: Voice(weight, confidence) for text, weight in readings.items()})


def test_each_word_is_voted_for_by_weight() -> None:
    readings = {"Welcome to the w0rkshop": 2.0, "Welcame to the workshop": 1.5, "Welcome ta the workshop": 1.0}
    assert agreed(readings) == "Welcome to the workshop"


def test_when_each_reading_is_wrong_elsewhere_the_right_word_is_the_nearest_to_all() -> None:
    assert agreed({"Directed": 1.0, "Dlrected": 1.0, "Dirccted": 1.0}) == "Directed"


def test_a_word_that_some_readings_lack_stays() -> None:
    assert agreed({"On the table": 2.0, "On the kitchen table": 1.5}) == "On the kitchen table"
    assert agreed({"On thekitchen table": 1.0, "On the kitchen table": 2.0}) == "On the kitchen table"
    assert agreed({"Dr. Helena": 5.0, "Dr. Helena Brandt": 1.0}) == "Dr. Helena Brandt"


def test_a_word_that_a_reading_added_without_being_sure_goes() -> None:
    sure, unsure = Voice(5.0, 0.95), Voice(1.0, 0.8)
    assert consensus({"On the kitchen table": sure, "On the kitchen table ae": unsure}) == "On the kitchen table"
    assert agreed({"On the kitchen table": 20.0, "On the kitchen table ae": 1.0}) == "On the kitchen table"


@hypothesis.settings(deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    st.dictionaries(st.text("ab1l ", min_size=1).map(str.strip).filter(bool), st.floats(0.1, 9), min_size=1)
)
def test_a_consensus_says_something(readings: dict[str, float]) -> None:
    agreed_text = agreed(readings)
    assert agreed_text
    assert set(agreed_text) <= set("".join(readings) + " ")
    assert agreed(dict(reversed(readings.items()))) == agreed_text
