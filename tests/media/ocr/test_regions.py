"""Words → lines, without any picture."""

from __future__ import annotations

import pytest

from callsheet.media.ocr.records import Box, Word
from callsheet.media.ocr.regions import regions
from callsheet.media.ocr.tesseract import merge, overlap


def word(text: str, x: int, y: int = 100, *, confidence: float = 95.0, line: int = 1, pass_id: str = "whole") -> Word:
    return Word(text, Box(x, y, 20 * len(text), 30), confidence, "eng", line, line, pass_id)


def texts(*words: Word, least: float = 0.6) -> list[str]:
    return [region.text for region in regions(words, least)]


def row(text: str, confidence: float = 95.0) -> list[Word]:
    """Words next to one another, a word space apart."""
    results: list[Word] = []
    x = 10
    for part in text.split():
        results.append(word(part, x, confidence=confidence))
        x += 20 * len(part) + 15
    return results


def test_a_line_is_its_words_with_its_box_and_confidence() -> None:
    (region,) = regions([word("Good", 10, confidence=90), word("morning", 105, confidence=70)])
    assert region.text == "Good morning"
    assert region.box == Box(10, 100, 235, 30)
    assert region.confidence == pytest.approx((90 * 4 + 70 * 7) / 11 / 100, abs=1e-4)
    assert region.language == "eng"
    assert [one.text for one in region.words] == ["Good", "morning"]


def test_lines_come_from_top_to_bottom() -> None:
    assert texts(word("below", 10, 300, line=2), word("above", 10, 100)) == ["above", "below"]


def test_a_line_below_the_least_confidence_is_left_out() -> None:
    assert texts(word("faint", 10, confidence=59)) == []
    assert texts(word("faint", 10, confidence=59), least=0.5) == ["faint"]
    assert texts(word("faint", 10, confidence=1), least=0.0) == ["faint"]


def test_the_sure_part_of_an_unsure_line_stays() -> None:
    path = word("tests/a_very_long_path_of_a_test", 180, confidence=45)
    assert texts(word("FAILED", 10, confidence=93), path) == ["FAILED"]
    assert texts(word("on", 120, confidence=93), path) == []
    assert texts(word("FAILED", 10, confidence=80), path) == []


def test_a_weak_word_goes_and_its_line_stays() -> None:
    assert texts(*row("sure words"), word("zq", 250, confidence=20)) == ["sure words"]
    assert texts(*row("sure words"), word("here", 250, confidence=50)) == ["sure words here"]


@pytest.mark.parametrize("text", ["|", "_", "~", "---", "“", "e", "i l j", "| | |", "=-", "),", "\x00", ""])
def test_signs_that_mean_nothing_are_left_out(text: str) -> None:
    assert texts(*row(text, 80)) == []


@pytest.mark.parametrize(
    "text",
    ["@callsheet", "#launch", "https://a.io/x", "$5", "5 €", "100%", "A1-B2", "7", "X", "main()", "C++", "I", "a@b.io"],
)
def test_what_people_search_for_is_kept(text: str) -> None:
    assert texts(*row(text)) == [text]


def test_signs_at_the_ends_are_cut_off_and_those_within_stay() -> None:
    assert texts(*row("| Speed | 20 ~")) == ["Speed | 20"]
    assert texts(*row("$ make test")) == ["$ make test"]


def test_columns_are_lines_of_their_own() -> None:
    assert texts(word("Oslo", 10), word("709037", 600)) == ["Oslo", "709037"]


def test_a_line_that_two_passes_have_read_is_one() -> None:
    results = [word("We", 10), word("never", 65, 102, line=4, pass_id="bright"), word("knew", 180, line=1)]
    assert texts(*results) == ["We never knew"]


def test_lines_on_top_of_one_another_stay_apart() -> None:
    assert texts(word("first", 10, 100), word("second", 10, 135, line=2)) == ["first", "second"]


def test_chinese_has_no_spaces_and_korean_has() -> None:
    assert texts(word("你", 10), word("好", 45)) == ["你好"]
    assert texts(word("안녕", 10), word("세계", 65)) == ["안녕 세계"]


def test_the_language_of_a_line_is_that_of_most_of_it() -> None:
    results = [word("Straßenbahn", 10)._replace(language="deu"), word("stop", 250)]
    assert regions(results)[0].language == "deu"


def test_no_words_are_no_lines() -> None:
    assert regions([]) == []


def test_the_surer_of_two_passes_is_kept() -> None:
    old, new = word("hcllo", 10, confidence=70), word("hello", 12, confidence=95, pass_id="bright")
    assert merge([old], [new]) == [new]
    assert merge([new], [old]) == [new]


def test_one_word_takes_the_place_of_its_pieces() -> None:
    pieces = [word("Fo", 10, confidence=96), word("rest", 55, confidence=96)]
    whole = Word("Forest", Box(10, 100, 130, 30), 90.0, "eng", 1, 1, "bright")
    assert merge(list(pieces), [whole]) == [whole]
    assert merge([whole], pieces) == [whole]


def test_a_word_in_a_new_place_is_added() -> None:
    assert len(merge([word("one", 10)], [word("two", 500, confidence=60)])) == 2


def test_overlap_is_a_part_of_the_smaller_box() -> None:
    assert overlap(Box(0, 0, 10, 10), Box(5, 0, 10, 10)) == 0.5
    assert overlap(Box(0, 0, 10, 10), Box(20, 0, 10, 10)) == 0.0
    assert overlap(Box(0, 0, 0, 0), Box(0, 0, 10, 10)) == 0.0
