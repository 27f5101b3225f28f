"""`docs/security.md` names a test for each wall; here is what keeps that list true."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text("utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| asset")]


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(TEXT))))
def test_a_named_test_exists(path: str, name: str) -> None:
    assert name in names_in(path)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:40])
def test_every_wall_names_a_test(row: str) -> None:
    assert len(row.strip("|").split("|")) == 4
    assert TEST.findall(row)


def test_every_file_of_attacks_is_named() -> None:
    test_files = {path for path, _ in TEST.findall(TEXT)}
    files = {f"tests/security/{path.name}" for path in (ROOT / "tests" / "security").glob("test_*.py")}
    assert files <= test_files
