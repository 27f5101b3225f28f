"""Files and functions stay small enough to be read in one sitting."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import SRC

FILE_LINES = 400
FUNCTION_LINES = 15  # nine functions of ten have at most so many, without their docstring
SHARE = 0.9


def lines_of_functions(path: Path) -> Iterator[int]:
    """Yield the number of lines of each function of a file, from its `def` to its end, without its docstring."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            has_docstring = ast.get_docstring(node, clean=False) is not None
            docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
            yield (node.end_lineno or 0) - node.lineno + 1 - docstring


def test_no_file_is_longer_than_400_lines() -> None:
    lines = {str(path.relative_to(SRC)): path.read_text("utf-8").count("\n") for path in SRC.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > FILE_LINES} == {}


def test_nine_functions_of_ten_have_at_most_15_lines() -> None:
    lengths = sorted(count for path in SRC.rglob("*.py") for count in lines_of_functions(path))
    assert lengths[int(SHARE * len(lengths))] <= FUNCTION_LINES


def test_the_lines_of_a_function_are_counted_without_its_docstring(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        'def one():\n    """Return\n\n    one.\n    """\n    return 1\n\n\ndef two(): return 2\n', "utf-8"
    )
    assert list(lines_of_functions(module)) == [2, 1]
