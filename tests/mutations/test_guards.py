"""Mutation proof: each guard is taken out of a copy of the program, and the test that it answers to must go red.

A guard that can be removed without a red test is not proved. The `of_*.py` files list them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.guard import Guard
from tests.mutations.of_kernel import KERNEL
from tests.mutations.of_postgres import POSTGRES
from tests.mutations.of_redis import REDIS
from tests.mutations.of_sqlite import SQLITE
from tests.mutations.of_vault import VAULT
from tests.mutations.of_worker import WORKER

ROOT = Path(__file__).parents[2]
TESTS_FAILED = 1
GUARDS = [*KERNEL, *SQLITE, *POSTGRES, *REDIS, *WORKER, *VAULT]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: f"{guard.store}:{guard.name}".replace(" ", "-"))
def test_a_removed_guard_turns_its_test_red(guard: Guard, tmp_path: Path) -> None:
    source = tmp_path / "src" / "callsheet" / guard.file
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignore)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    text = source.read_text("utf-8")
    assert text.count(guard.before) == guard.times, f"{guard.file} has not {guard.times} × {guard.before!r} any more"
    source.write_text(text.replace(guard.before, guard.after), "utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *guard.test.split(),
    ]
    command += ["-k", guard.store] if guard.store != "kernel" else []
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == TESTS_FAILED, f"without this guard {guard.test} says:\n{run.stdout}\n{run.stderr}"
    assert "failed" in run.stdout.splitlines()[-1]
    assert "error" not in run.stdout.splitlines()[-1]
