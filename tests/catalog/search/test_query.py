from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.catalog.search.query import MAX_CHARACTERS, MAX_WORDS, entity_flag, parse
from callsheet.catalog.search.records import Query
from callsheet.kernel.errors import InvalidInput


def read(text: str, mode: str = "fuzzy") -> list[tuple[str, ...]]:
    """Each clause as its terms, with `-` first where it is excluded."""
    parsed_query = parse(Query(text, mode))
    assert parsed_query is not None
    return [(*["-"] * clause.is_excluded, *(part.term for part in clause.parts)) for clause in parsed_query.clauses]


def fits(text: str, mode: str = "fuzzy") -> list[str]:
    parsed_query = parse(Query(text, mode))
    assert parsed_query is not None
    return [part.fit for clause in parsed_query.clauses for part in clause.parts]


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("hello  World", [("hello",), ("world",)]),
        ('say "hello world" twice', [("say",), ("hello", "world"), ("twice",)]),
        ("say “hello world”", [("say",), ("hello", "world")]),
        ('yes -no -"not this"', [("yes",), ("-", "no"), ("-", "not", "this")]),
        ("@alice #tag", [("@alice",), ("#tag",)]),
        ("example.com/watch", [("example", "com", "watch")]),
        ('5" screen', [("5",), ("screen",)]),
        ("漢字テスト", [("漢字", "字テ", "テス", "スト")]),
        ("a AND b OR NOT (c*) NEAR/2 ^d", [("a",), ("and",), ("b",), ("or",), ("not",), ("c",), ("near", "2"), ("d",)]),
        ("same same SAME", [("same",)]),
    ],
)
def test_user_text_is_read_as_clauses(text: str, clauses: list[tuple[str, ...]]) -> None:
    assert read(text) == clauses


@pytest.mark.parametrize("text", ["***", '"', '""', "-", '-"', "@", "()", "\x00", "\ud800", "'; --"])
def test_text_without_a_letter_asks_for_nothing_and_is_no_error(text: str) -> None:
    assert parse(Query(text)) is None


def test_how_freely_a_word_is_read_depends_on_how_it_stands() -> None:
    assert fits('one "two" "three four" -five') == ["word", "quoted", "phrase", "phrase", "quoted"]
    assert fits("one two-three", "exact") == ["equal"] * 3
    assert fits("one b-mw-12 xy", "substring") == ["contains", "ends", "equal", "starts", "equal"]


@contextlib.contextmanager
def allowed_to_be_long() -> Iterator[None]:
    """The only error that a text of allowed length may end in."""
    try:
        yield
    except InvalidInput as error:
        if f"at most {MAX_WORDS} words" not in str(error):
            raise


@given(st.text(max_size=MAX_CHARACTERS), st.sampled_from(["fuzzy", "exact", "substring"]))
def test_no_text_is_a_syntax_error(text: str, mode: str) -> None:
    with allowed_to_be_long():
        parse(Query(text, mode, language="en"))


@given(st.lists(st.sampled_from(['"', "-", "@", "#", "a", "b1", " ", "*", "'", "(", "OR", "漢", "👍", "\\", "%", ":"])))
def test_no_mixture_of_operators_is_a_syntax_error(pieces: list[str]) -> None:
    text = "".join(pieces)[:MAX_CHARACTERS]
    with allowed_to_be_long():
        parsed_query = parse(Query(text, language="en"))
        assert parsed_query is None or all(part.term for clause in parsed_query.clauses for part in clause.parts)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"text": "x" * 10_240}, "10240 characters; at most 1000"),
        ({"text": " ".join(f"w{i}" for i in range(40))}, "at most 32 words"),
        ({"text": ""}, "give words, or a filter"),
        ({"text": "  "}, "give words, or a filter"),
        ({"text": "a", "mode": "regex"}, "fuzzy, exact, substring"),
        ({"text": "a", "limit": 0}, "between 1 and 200"),
        ({"text": "a", "limit": 201}, "between 1 and 200"),
        ({"text": "a", "from_ms": 5, "to_ms": 5}, "must be after from_ms"),
        ({"text": "a", "min_confidence": 1.5}, "between 0 and 1"),
        ({"text": "a", "min_confidence": float("nan")}, "between 0 and 1"),
        ({"text": "a", "video_ids": tuple(str(i) for i in range(1001))}, "at most 1000"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_to_do(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse(Query(**wrong))


def test_an_entity_is_found_with_and_without_its_sign() -> None:
    assert entity_flag("mention", "@Alice") == entity_flag("mention", "alice")
    assert entity_flag("mention", "alice") != entity_flag("hashtag", "alice")
