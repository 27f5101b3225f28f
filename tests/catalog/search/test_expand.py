from __future__ import annotations

import random

from callsheet.catalog.search.query import Part
from callsheet.catalog.search.terms import MOST, MOST_ROWS, Terms, Tiers, expand
from callsheet.catalog.search.words import look_alike


def listed(*words: str) -> Terms:
    terms = Terms()
    terms.apply(1, [(word, 1) for word in words])
    return terms


def tiers(word: str, terms: Terms, fit: str = "word") -> Tiers:
    return expand(Part(word, 0, fit), terms).tiers


def test_a_word_is_taken_for_itself_then_misread_then_mistyped_then_longer() -> None:
    terms = listed("hello", "he11o", "hallo", "ehllo", "helloo", "hellos", "hello2day", "yellow", "help")
    assert tiers("hello", terms) == (("hello",), ("he11o",), ("ehllo", "hallo", "helloo", "hellos"), ("hello2day",))


def test_a_short_word_is_not_guessed_at() -> None:
    assert tiers("car", listed("cat", "ear", "carpet", "bar")) == (("car",), (), (), ("carpet",))


def test_a_number_is_not_guessed_at() -> None:
    assert tiers("2024", listed("2025", "2023", "20240")) == (("2024",), (), (), ("20240",))


def test_one_word_in_quotes_forgives_only_what_ocr_confuses() -> None:
    assert tiers("hello", listed("he1lo", "hallo", "hellos"), "quoted") == (("hello",), ("he1lo",))


def test_parts_of_words_are_found_inside_at_the_start_or_at_the_end() -> None:
    terms = listed("bmw", "mw", "mwx", "ymwx")
    assert tiers("mw", terms, "contains")[1] == ("bmw", "mwx", "ymwx")
    assert tiers("mw", terms, "starts")[1] == ("mwx",)
    assert tiers("mw", terms, "ends")[1] == ("bmw",)


def test_a_frequent_beginning_is_taken_for_its_most_frequent_words_only() -> None:
    terms = Terms()
    terms.apply(1, [(f"pre{i:04}", i) for i in range(1, 1000)])
    terms.newest = 3
    words = tiers("pre", terms)[3]
    assert expand(Part("pre", 0, "word"), terms).is_cut
    assert words == tuple(f"pre{i:04}" for i in range(999, 999 - MOST["prefix"], -1))


def test_a_frequent_word_is_taken_for_its_rare_misreadings_rather_than_for_other_frequent_words() -> None:
    terms = Terms()
    terms.newest = MOST_ROWS
    terms.apply(1, [("where", 900_000), ("there", 800_000), ("thene", 3), ("therc", 2), ("ehere", 400_000)])
    words = expand(Part("there", 0, "word"), terms)
    assert (words.tiers[2], words.is_cut) == (("therc", "thene"), True)


def test_a_word_that_left_the_catalogue_is_not_taken() -> None:
    terms = listed("hallo")
    terms.apply(2, [("hallo", 0)])
    assert tiers("hello", terms)[2] == ()


def test_a_list_that_is_older_than_ours_changes_nothing() -> None:
    terms = listed("hallo")
    terms.apply(1, [("hallo", 99)])
    assert terms.frequency["hallo"] == 1


def neighbours(word: str) -> set[str]:
    """All words one letter away or with two neighbours swapped, made the long way."""
    letters = "abcd"
    cut = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    one_edit_away = {a + b[1:] for a, b in cut if b} | {a + c + b for a, b in cut for c in letters}
    one_edit_away |= {a + c + b[1:] for a, b in cut if b for c in letters}
    return one_edit_away | {a + b[1] + b[0] + b[2:] for a, b in cut if len(b) > 1}


def test_the_halves_lose_no_word_that_is_one_letter_away() -> None:
    chance = random.Random(7)
    vocabulary = sorted({"".join(chance.choices("abcd", k=chance.randint(1, 8))) for _ in range(20_000)})
    terms = listed(*vocabulary)
    for word in ["".join(chance.choices("abcd", k=chance.randint(4, 8))) for _ in range(300)]:
        words = tiers(word, terms)
        near = {other for other in neighbours(word) & set(vocabulary) if look_alike(other) != look_alike(word)}
        assert set(words[2]) == near - {word}, word
