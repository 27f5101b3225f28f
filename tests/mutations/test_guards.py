"""Mutation proof: each guard is taken out of a copy of the program, and the test that it answers to must go red.

A guard that can be removed without a red test is not proved. The `of_*.py` files list them. One in eight is
tried in `make test`, but none that is slow; all are in `make mutations`. That their texts still stand in the program is
looked at each time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import stores
from tests.mutations.guard import Guard
from tests.mutations.of_catalog import CATALOG
from tests.mutations.of_kernel import KERNEL
from tests.mutations.of_letter_cortana import LETTER_CORTANA
from tests.mutations.of_letter_redis_gateway import LETTER_REDIS_GATEWAY
from tests.mutations.of_postgres import POSTGRES
from tests.mutations.of_redis import REDIS
from tests.mutations.of_security_front import FRONT
from tests.mutations.of_security_media import SECURITY_MEDIA
from tests.mutations.of_security_objects import OBJECTS
from tests.mutations.of_security_quotas import SECURITY_QUOTAS
from tests.mutations.of_security_workers import SECURITY_WORKERS
from tests.mutations.of_sqlite import SQLITE
from tests.mutations.of_studio import STUDIO
from tests.mutations.of_vault import VAULT
from tests.mutations.of_worker import WORKER

ROOT = Path(__file__).parents[2]
TESTS_FAILED = 1
ALL = [
    *KERNEL,
    *SQLITE,
    *POSTGRES,
    *REDIS,
    *WORKER,
    *VAULT,
    *CATALOG,
    *STUDIO,
    *FRONT,
    *OBJECTS,
    *SECURITY_MEDIA,
    *SECURITY_QUOTAS,
    *SECURITY_WORKERS,
    *LETTER_CORTANA,
    *LETTER_REDIS_GATEWAY,
]
SLOW = (  # without them their tests wait for a minute
    "an outcome waits for the store",
    "a heartbeat waits for nobody",
    "slots are counted under a lock",
    "work stops when the lease runs out",
    "programs die with their attempt",
)
ONE_IN = 8
SOME = [guard for guard in ALL if guard.name not in SLOW][::ONE_IN]
GUARDS = ALL if os.environ.get("CALLSHEET_DEEP") else SOME  # each is a test run of its own; `make mutations` has all


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: f"{guard.store}:{guard.name}".replace(" ", "-"))
def test_a_removed_guard_turns_its_test_red(guard: Guard, tmp_path: Path) -> None:
    source = tmp_path / "src" / "callsheet" / guard.file
    _lay(ROOT / "src", tmp_path / "src", ("callsheet", *guard.file.split("/")))
    for folder in ("tests", "tools"):
        (tmp_path / folder).symlink_to(ROOT / folder)
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
        "-p",
        "no:schemathesis",  # to load it takes longer than most of these tests
        *guard.test.split(),
    ]
    command += ["-p", "no:hypothesispytest", "-k", guard.store] if guard.store != "kernel" else []
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'src'}:{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1"}
    if guard.store == "postgres":
        environment["CALLSHEET_TEST_POSTGRES_URL"] = stores.postgres_server().url()  # a new one would take 2 s
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == TESTS_FAILED, f"without this guard {guard.test} says:\n{run.stdout}\n{run.stderr}"
    assert "failed" in run.stdout.splitlines()[-1]
    assert "error" not in run.stdout.splitlines()[-1]


@pytest.mark.parametrize("guard", ALL, ids=lambda guard: f"{guard.store}:{guard.name}".replace(" ", "-"))
def test_a_guard_stands_where_it_is_listed(guard: Guard) -> None:
    assert (ROOT / "src" / "callsheet" / guard.file).read_text("utf-8").count(guard.before) == guard.times


def _lay(source: Path, target: Path, changed: tuple[str, ...]) -> None:
    """The tree as links, so that nothing is compiled anew, but for the file that is to be changed."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.name != changed[0]:
            (target / entry.name).symlink_to(entry)
        elif len(changed) > 1:
            _lay(entry, target / entry.name, changed[1:])
        else:
            shutil.copy(entry, target / entry.name)
