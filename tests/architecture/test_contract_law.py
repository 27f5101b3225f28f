"""Differences between contracts are fields of `Lifecycle`: nothing outside a contract's own files branches on one.

`kernel/contracts` has the tables and sets derived from tables (such as `RESUMABLE`); code may read these. A contract
may import shared code, but no other contract.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from callsheet.kernel.contracts import CALLSHEET, CONTRACTS
from tests.architecture.sources import SRC, imports, modules

ROOT = SRC / "callsheet"
TABLES = "callsheet.kernel.contracts"
NAMES = frozenset(CONTRACTS) - {CALLSHEET.name}  # that one is also the program's own name
OWN = {path.name for path in (ROOT / "contracts").iterdir() if path.is_dir() and path.name in NAMES}
LUA = sorted(ROOT.rglob("*.lua"))


def is_a_contracts(path: Path) -> bool:
    """Whether a file may name a contract: the tables, and modules in a contract's own folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:2] == ("kernel", "contracts") or (parts[0] == "contracts" and parts[1] in OWN)


PYTHON = [path for path in sorted(ROOT.rglob("*.py")) if not is_a_contracts(path)]


def branches(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and source of every expression in a module that branches on the contract."""
    tree = ast.parse(text)
    tables = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == "contracts"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if _is_a_branch(node, tables):
            yield node.lineno, ast.unparse(node)  # type: ignore[attr-defined] # a branch has its line


def _is_a_branch(node: ast.AST, tables: set[str]) -> bool:
    match node:
        case ast.Constant(value=str() as value):
            return value in NAMES
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
            return any(map(_is_contract, sides)) and any(_is_fixed(side, tables) for side in sides)
        case (
            ast.Subscript(value=table, slice=key)
            | ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *_])
        ):
            return _is_contract(key) and _is_fixed(table, tables)
        case ast.Match(subject=subject):
            return _is_contract(subject)
    return False


def _is_contract(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name == "contract" or name.endswith("_contract")


def _is_fixed(node: ast.AST, tables: set[str]) -> bool:
    """Return whether a value is a literal in the module.

    A text, several, or a constant that is none of the tables' sets.
    """
    match node:
        case ast.Constant(value=str() as value):
            return bool(value)
        case ast.Tuple() | ast.Set() | ast.List() | ast.Dict():
            return True
        case ast.Name(id=name):
            return name.isupper() and name not in tables
        case ast.Attribute(value=ast.Name(id=name)):
            return name.isupper()  # AURA.name
    return False


def branches_of_lua(text: str) -> list[str]:
    """Return the lines of a script that name a contract or compare one with a literal."""
    code = [line.partition("--")[0].rstrip() for line in text.splitlines()]
    contract_in_quotes = re.compile(rf"""['"]({"|".join(CONTRACTS)})['"]""")
    compared = re.compile(r"""\bcontract\s*[~=]=\s*['"A-Z]|['"A-Z]\w*['"]?\s*[~=]=\s*(\w+\.)?contract\b""")
    return [line for line in code if contract_in_quotes.search(line) or compared.search(line)]


def test_there_are_contracts_to_look_at() -> None:
    assert OWN == NAMES
    assert PYTHON
    assert LUA


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_outside_a_contract_branches_on_it(path: Path) -> None:
    assert list(branches(path.read_text("utf-8"))) == []


@pytest.mark.parametrize("path", LUA, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_script_branches_on_a_contract(path: Path) -> None:
    assert branches_of_lua(path.read_text("utf-8")) == []


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_contract_imports_no_other(name: str) -> None:
    module_files, home = modules(), f"callsheet.contracts.{name}"
    others = tuple(f"callsheet.contracts.{other}" for other in NAMES - {name})
    results = {
        (module, target)
        for module, path in module_files.items()
        if f"{module}.".startswith(f"{home}.")
        for target in imports(path, module_files)
        if target.startswith(others)
    }
    assert results == set()


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("if job.contract == 'aura': pass", True),
        ("if job.contract == PHASED: pass", True),
        ("if AURA.name != new.contract: pass", True),
        ("if job.contract in OURS: pass", True),
        ("if job.contract in ('callsheet',): pass", True),
        ("route = ROUTES[contract]", True),
        ("route = ROUTES.get(job.contract, '')", True),
        ("match job.contract:\n    case _: pass", True),
        ("PHASED = 'aura'", True),
        (f"from {TABLES} import RESUMABLE\nif job.contract in RESUMABLE: pass", False),
        ("if definition.contract != job.contract: pass", False),
        ("if not job.contract: pass", False),
        ("if lifecycle_of(job.contract).resumable: pass", False),
    ],
)
def test_the_law_tells_a_branch_from_a_question_to_the_tables(text: str, *, is_one: bool) -> None:
    assert bool(list(branches(text))) == is_one


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("if contract == 'redis_gateway' then", True),
        ("  touch(id, ttl_s, 'redis_gateway')", True),
        ("if FOREIGN ~= job.contract then", True),
        ("if EXPIRES[job.contract] then -- as 'redis_gateway'", False),
        ("if found.contract ~= new.contract then", False),
    ],
)
def test_the_law_reads_scripts(text: str, *, is_one: bool) -> None:
    assert bool(branches_of_lua(text)) == is_one
