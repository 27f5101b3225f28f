"""The kernel is pure.

Only certain modules of the standard library, the kernel itself, and no built-in function with I/O.

Which layer may import which is checked by import-linter (`make check`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

KERNEL = Path(__file__).parents[2] / "src" / "callsheet" / "kernel"
MODULES = sorted(KERNEL.rglob("*.py"))
ALLOWED = frozenset(
    [
        "__future__",
        "collections",
        "dataclasses",
        "enum",
        "functools",
        "graphlib",
        "hashlib",
        "json",
        "typing",
        "re",
        "math",
    ]
)
IMPURE_BUILTINS = frozenset(["__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print"])


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every module that a kernel file imports, wherever in the file."""
    package = path.relative_to(KERNEL.parents[1]).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            yield node.lineno, ".".join([*above, *filter(None, [node.module])])


def is_allowed(module: str) -> bool:
    return module.partition(".")[0] in ALLOWED or module == "callsheet.kernel" or module.startswith("callsheet.kernel.")


def test_there_is_a_kernel_to_check() -> None:
    assert MODULES


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(KERNEL)))
def test_a_kernel_module_imports_only_what_is_pure(path: Path) -> None:
    assert [(line, module) for line, module in imported(path) if not is_allowed(module)] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(KERNEL)))
def test_a_kernel_module_calls_no_builtin_that_does_io(path: Path) -> None:
    names = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name))
    assert [(name.lineno, name.id) for name in names if name.id in IMPURE_BUILTINS] == []


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("json", True),
        ("collections.abc", True),
        ("callsheet.kernel.job", True),
        ("callsheet.kernels", False),
        ("callsheet.store", False),
        ("time", False),
        ("asyncpg", False),
    ],
)
def test_the_law_tells_pure_from_impure(module: str, *, allowed: bool) -> None:
    assert is_allowed(module) == allowed


def test_the_law_sees_relative_imports_that_leave_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tmp_path / "callsheet" / "kernel"
    kernel.mkdir(parents=True)
    monkeypatch.setitem(globals(), "KERNEL", kernel)
    module = kernel / "impure.py"
    module.write_text("from ..store import protocol\nfrom .job import Job\nimport time\n")
    assert list(imported(module)) == [(1, "callsheet.store"), (2, "callsheet.kernel.job"), (3, "time")]
