"""A copy of the program without a guard is what the storm runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations import laying
from tests.storm.plan import STORES
from tests.storm.without import GUARDS, guards_of

NOT_OF = {("callbacks are written with their move", "redis")}  # its script is the transaction: there is no later


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", GUARDS)
def test_each_guard_has_a_text_on_each_store(name: str, store: str) -> None:
    assert bool(guards_of(name, store)) is ((name, store) not in NOT_OF)


def test_what_is_laid_runs_without_the_guards(tmp_path: Path) -> None:
    guards = guards_of("fence of settle", "sqlite")
    laying.lay(guards, tmp_path)
    code = "import callsheet.store, tests.storm.processes as p; print(callsheet.store.__file__); print(p.PATH[0])"
    environment = {**os.environ, **laying.variables(tmp_path)}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [str(tmp_path / "src/callsheet/store/__init__.py"), str(tmp_path / "src")]
    for guard in guards:
        assert guard.before not in (tmp_path / "src/callsheet" / guard.file).read_text("utf-8")
        assert guard.before in (laying.ROOT / "src/callsheet" / guard.file).read_text("utf-8")
