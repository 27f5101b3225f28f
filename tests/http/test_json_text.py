"""JSON from any origin can be returned, on one line."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from callsheet.http.json_bodies import json_text, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def test_what_can_be_read_can_be_answered_with_at_any_depth() -> None:
    for depth in range(800, 1100):
        text = "[" * depth + "]" * depth
        value = parse_json(text)
        assert json_text({"jobs": [{"job": {"result": value}}]})


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_a_value_comes_back_from_one_line_of_text(value: Any) -> None:
    text = json_text(value)
    assert len(text.splitlines()) <= 1
    assert json.loads(text.encode()) == value
    assert parse_json(text) == value


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_any_text_can_be_answered_with(text: str) -> None:
    assert json.loads(json_text(parse_json(text)).encode()) == parse_json(text)
