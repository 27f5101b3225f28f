"""`docs/contracts/*.md` name the code and a test for each clause of a contract; here is what keeps those lists true.

A code cell is a file below `src/callsheet`, optionally with a name: `contracts/aura/debounce.py::Debounce`.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {page.stem: page.read_text("utf-8") for page in sorted((ROOT / "docs" / "contracts").glob("*.md"))}
ROW = re.compile(r"^\| ([A-Z])(\d+) \| (.*?) \| (.*) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CODE = re.compile(r"`([\w/.]+\.(?:py|lua|sql|js))(?:::(\w+))?`")
NAMED = sorted({(page, path, name) for page, text in PAGES.items() for path, name in TEST.findall(text)})
LEAST = {"redis-gateway": 45, "euterpe": 71}  # clauses that a contract has at least


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of a file's tests, read and not imported."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


@pytest.mark.parametrize(("page", "path", "name"), NAMED)
def test_a_named_test_exists(page: str, path: str, name: str) -> None:
    assert (ROOT / path).is_file(), f"docs/contracts/{page}.md names {path}"
    assert name in names_in(path)


def code_of(rest: str) -> list[tuple[str, str]]:
    """Return the files and names in the column before the tests' column."""
    column, _, _ = rest.rpartition(" | ")
    return CODE.findall(column)


def is_defined(path: str, name: str) -> bool:
    """Return whether the file exists and defines the name; files other than Python need the name as a word."""
    file = ROOT / "src" / "callsheet" / path
    if not file.is_file():
        return False
    text = file.read_text("utf-8")
    defined = rf"^\s*(?:async def|def|class) {name}\b|^{name}\b[^=\n]*=" if path.endswith(".py") else rf"\b{name}\b"
    return not name or re.search(defined, text, re.MULTILINE) is not None


@pytest.mark.parametrize("page", PAGES)
def test_every_clause_names_its_code(page: str) -> None:
    rows = ROW.findall(PAGES[page])
    assert [f"{letter}{n}" for letter, n, _, rest in rows if not code_of(rest)] == []
    code_places = {(path, name) for *_, rest in rows for path, name in code_of(rest)}
    assert sorted(f"{path}::{name}" for path, name in code_places if not is_defined(path, name)) == []


def test_a_code_that_is_not_there_is_seen() -> None:
    assert is_defined("contracts/aura/debounce.py", "Debounce")
    assert not is_defined("contracts/aura/debounce.py", "NoSuchName")
    assert not is_defined("contracts/aura/no_such_file.py", "")
    assert is_defined("store/redis/scripts/lib.lua", "touch")
    assert not is_defined("store/redis/scripts/lib.lua", "no_such_function")


@pytest.mark.parametrize("page", PAGES)
def test_every_clause_names_a_test(page: str) -> None:
    assert [f"{letter}{n}" for letter, n, _, proof in ROW.findall(PAGES[page]) if not TEST.findall(proof)] == []


@pytest.mark.parametrize("page", PAGES)
def test_clauses_are_numbered_without_a_gap_and_said_once(page: str) -> None:
    rows = ROW.findall(PAGES[page])
    for (letter, n, *_), (next_letter, next_n, *_) in pairwise(rows):
        assert int(next_n) == (int(n) + 1 if next_letter == letter else 1)
    assert len({text for _, _, text, _ in rows}) == len(rows)


@pytest.mark.parametrize("page", LEAST)
def test_the_whole_contract_is_in_the_table(page: str) -> None:
    assert sum(letter == "C" for letter, *_ in ROW.findall(PAGES[page])) >= LEAST[page]
