"""`docs/guarantees.md` names a test for each promise; here is what keeps that list true."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.conformance.__main__ import guarantees

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| ([GS]\d+) \|(.*)$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
TEXT = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
ROWS = dict(ROW.findall(TEXT))


@cache
def marks_of_tests(path: str) -> dict[str, set[str]]:
    """Return the tests of a file with their guarantee marks."""
    by_name = {}
    for node in ast.parse((ROOT / path).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = [d for d in node.decorator_list if isinstance(d, ast.Call) and "guarantee" in ast.unparse(d.func)]
            by_name[node.name] = {ast.literal_eval(arg) for call in calls for arg in call.args}
    return by_name


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(TEXT))))
def test_a_named_test_exists(path: str, name: str) -> None:
    assert name in marks_of_tests(path)


@pytest.mark.parametrize("row", sorted(ROWS))
def test_every_row_names_a_test(row: str) -> None:
    assert TEST.findall(ROWS[row])


def test_every_promise_and_every_store_guarantee_has_a_row() -> None:
    assert set(ROWS) == {f"G{n}" for n in range(1, 10)} | set(guarantees())


@pytest.mark.parametrize("guarantee", sorted(guarantees()))
def test_the_named_tests_are_marked_with_their_guarantee(guarantee: str) -> None:
    for path, name in TEST.findall(ROWS[guarantee]):
        assert guarantee in marks_of_tests(path)[name], name


def test_store_guarantees_are_numbered_without_a_gap() -> None:
    assert list(guarantees()) == [f"S{n}" for n in range(1, len(guarantees()) + 1)]
