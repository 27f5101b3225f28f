"""Lists the program's modules and their run-time imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"


def modules(src: Path = SRC) -> dict[str, Path]:
    """Return the file of every module, by the module's name."""
    return {name_of(path, src): path for path in sorted(src.rglob("*.py"))}


def name_of(path: Path, src: Path = SRC) -> str:
    """Return the name by which a file is imported."""
    parts = path.relative_to(src).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, known: dict[str, Path], src: Path = SRC) -> Iterator[str]:
    """Yield the modules of `known` that a file imports at run time, imports inside functions included."""
    name = name_of(path, src)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in _running(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                yield from [module for module in (f"{base}.{alias.name}", base) if module in known][:1]


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes below a node, except those under `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield other
                yield from _running(other)
        else:
            yield child
            yield from _running(child)
