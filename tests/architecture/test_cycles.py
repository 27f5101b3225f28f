"""No module imports another that imports it, not even within a function.

Only an import under `if TYPE_CHECKING:` may close a circle.
"""

from __future__ import annotations

import graphlib
from pathlib import Path

from tests.architecture.sources import SRC, imports, modules


def cycle(src: Path = SRC) -> list[str]:
    """Return the modules of one circle of imports; empty without a cycle."""
    module_files = modules(src)
    graph = {name: set(imports(path, module_files, src)) - {name} for name, path in module_files.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_imports_go_in_a_circle() -> None:
    assert cycle() == []


def test_the_law_sees_a_circle_through_a_function(tmp_path: Path) -> None:
    package = tmp_path / "callsheet"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("from .two import up\n")
    (package / "two.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import one\n")
    assert cycle(tmp_path) == []
    (package / "two.py").write_text("def up():\n    from callsheet import one\n")
    assert set(cycle(tmp_path)) == {"callsheet.one", "callsheet.two"}
