from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.catalog.search import words
from callsheet.catalog.search.words import look_alike, map_positions, normal, plain_number, tokens


def terms(text: str) -> list[str]:
    return [token.term for token in tokens(normal(text))]


@pytest.mark.parametrize(
    ("text", "expected_texts"),
    [
        ("Hello, World!", ["hello", "world"]),
        ("@My_Name #tag", ["@my_name", "my", "name", "#tag", "tag"]),
        ("bob@example.com", ["bob", "example", "com"]),
        ("https://www.Example.com/watch?v=Ab1", ["example", "com", "watch", "v", "ab1"]),
        ("only $19.99, was 1,299.00", ["only", "19.99", "was", "1299.00"]),
        ("1.5km 4K x86_64", ["1.5", "km", "4k", "x86", "64"]),
        ("漢字テ 字", ["漢字", "漢", "字テ", "字", "テ", "字"]),
        ("STRASSE Straße ﬁne", ["strasse", "strasse", "fine"]),
        ("soft\u00adhyphen zero\u200bwidth", ["softhyphen", "zerowidth"]),
        ("👍🏽 🇩🇪 ©", ["👍", "🇩", "🇪"]),
        ("don't -- *** \x00 \ud800", ["don", "t"]),
        ("@ # @___ ##", []),
        ("हिन्दी नमस्ते", ["हिन्दी", "नमस्ते"]),
    ],
)
def test_a_text_is_split_into_words_that_people_look_for(text: str, expected_texts: list[str]) -> None:
    assert terms(text) == expected_texts


def test_words_at_one_place_count_as_one_step() -> None:
    places = {token.term: token.place for token in tokens("@my_name said hello")}
    assert places == {"@my_name": 0, "my": 0, "name": 1, "said": 2, "hello": 3}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("19.99", "19.99"),
        ("19,99", "19.99"),
        ("1,299", "1299"),
        ("1.299,00", "1299.00"),
        ("1,299,000", "1299000"),
        ("10.0.0.1", "10.0.0.1"),
        ("2024.01.02", "2024.01.02"),
    ],
)
def test_a_number_is_the_same_however_its_thousands_are_written(text: str, number: str) -> None:
    assert plain_number(text) == number


def test_what_ocr_confuses_looks_alike() -> None:
    pairs = [("hello", "he11o"), ("zoom", "20om"), ("modern", "modem"), ("café", "cafe"), ("81ll", "bill")]
    assert all(look_alike(a) == look_alike(b) for a, b in pairs)
    assert look_alike("cat") != look_alike("car")


@given(st.text(st.characters(max_codepoint=127)))
def test_plain_text_is_split_as_any_other(text: str) -> None:
    slow = [(match[0], match.lastgroup) for match in words._ANY.finditer(text.lower())]
    assert [(match[0], match.lastgroup) for match in words._ASCII.finditer(text.lower())] == slow


@given(st.text())
def test_every_word_leads_back_to_its_characters(text: str) -> None:
    where = map_positions(text)
    for token in tokens(where.text):
        start, end = where.original(token.start, token.end)
        assert 0 <= start < end <= len(text)
        if not token.term[0].isdigit():
            assert token.term in normal(text[start:end])


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_has_the_words_of_its_composed_form(text: str) -> None:
    assert terms(text) == terms(unicodedata.normalize("NFC", text))
