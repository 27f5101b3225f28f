"""What the guides import is public: it stands in `__all__` of a module that docs/reference/python.md lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import callsheet
from callsheet import errors
from callsheet.kernel import errors as kernel_errors
from tools.pages import PUBLIC

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.py")),
]


def code_of(page: Path) -> str:
    """Return the Python of a page as a reader sees it, without fragments that are none."""
    text = page.read_text("utf-8")
    if page.suffix == ".py":
        return text
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of everything of ours that some code imports."""
    for line in re.findall(r"^(?:from callsheet|import callsheet)[^\n]*(?:\([^)]*\))?", code, re.MULTILINE):
        for node in ast.walk(ast.parse(line)):
            if isinstance(node, ast.ImportFrom):
                yield from ((node.module or "", alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)


def is_public(module: str, name: str) -> bool:
    """Return whether guides may import a name from a module.

    The module lists the name, or the name is a public module.
    """
    if f"{module}.{name}" in PUBLIC:
        return True
    return module in PUBLIC and (not name or name in import_module(module).__all__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_imports_public_names_only(page: Path) -> None:
    assert [f"{module} {name}" for module, name in imported(code_of(page)) if not is_public(module, name)] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_has_every_name_that_it_lists(name: str) -> None:
    module = import_module(name)
    assert module.__all__
    assert len(set(module.__all__)) == len(module.__all__)
    for each in module.__all__:
        value = getattr(module, each)
        assert not callable(value) or value.__doc__, each


def test_every_error_of_the_library_is_public() -> None:
    known_names = {name for name, kind in vars(kernel_errors).items() if isinstance(kind, type)}
    assert set(errors.__all__) == known_names


def test_a_name_of_the_package_is_loaded_from_its_home() -> None:
    homes = [name for names in callsheet._HOMES.values() for name in names]
    assert sorted(homes) == sorted(callsheet.__all__)
    with pytest.raises(AttributeError):
        _ = callsheet.NoSuchName


@pytest.mark.parametrize(
    ("code", "public"),
    [
        ("from callsheet import Callsheet", True),
        ("from callsheet.engine import Engine, dead_letters", True),
        ("from callsheet.engine.schedules import Schedule", False),
        ("from callsheet.worker import slots", False),
        ("import callsheet.client", True),
        ("import callsheet.store", False),
    ],
)
def test_the_law_tells_a_public_name(code: str, *, public: bool) -> None:
    ((module, name),) = list(imported(code))[-1:]
    assert is_public(module, name) == public
