from __future__ import annotations

import hashlib

import hypothesis
import pytest
from hypothesis import strategies as st

from callsheet.media.reading.normalise import display_form, normalized, text_hash

ANY = st.text(alphabet=st.characters(), max_size=30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  Hello \t\n World ", "hello world"),
        ("ﬁne print", "fine print"),
        ("ＦＵＬＬ　width", "full width"),
        ("Straße", "strasse"),
        ("E\u0301cole", "école"),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zerowidth"),
        ("bell\x07 and nul\x00", "bell and nul"),
        ("half \ud83d of an emoji", "half of an emoji"),
        ("", ""),
    ],
)
def test_texts_that_say_the_same_have_one_form(text: str, expected: str) -> None:
    assert normalized(text) == expected
    assert text_hash(text) == hashlib.sha256(expected.encode()).hexdigest()


@hypothesis.settings(deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(ANY)
def test_the_form_of_a_form_is_itself(text: str) -> None:
    assert normalized(normalized(text)) == normalized(text)
    assert display_form(display_form(text)) == display_form(text)
    assert normalized(display_form(text)) == normalized(text)


def test_what_holds_an_emoji_together_stays() -> None:
    assert display_form("a 👨\u200d👩\u200d👧 family") == "a 👨\u200d👩\u200d👧 family"
