"""Mutation proof: remove each guard from a copy of the program; its test must fail.

A guard is proved only if its removal fails a test. The `of_*.py` files list them. `make test` tries one in `ONE_IN` (8)
of them, `make mutations` and `make deep` all. That their texts still stand in the program is looked at each time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import stores
from tests.mutations.guard import Guard
from tests.mutations.laying import FOLDERS, ROOT, lay
from tests.mutations.of_any_task import ANY_TASK
from tests.mutations.of_aura_letter import AURA_LETTER
from tests.mutations.of_catalog import CATALOG
from tests.mutations.of_clock import CLOCK
from tests.mutations.of_euterpe_letter import EUTERPE_LETTER
from tests.mutations.of_kernel import KERNEL
from tests.mutations.of_letter_cortana import LETTER_CORTANA
from tests.mutations.of_letter_euterpe_states import LETTER_EUTERPE_STATES
from tests.mutations.of_letter_redis_gateway import LETTER_REDIS_GATEWAY
from tests.mutations.of_outages import OUTAGES
from tests.mutations.of_plane_letter import PLANE_LETTER
from tests.mutations.of_postgres import POSTGRES
from tests.mutations.of_redis import REDIS
from tests.mutations.of_security_bytes import SECURITY_BYTES
from tests.mutations.of_security_clients import SECURITY_CLIENTS
from tests.mutations.of_security_floods import SECURITY_FLOODS
from tests.mutations.of_security_front import FRONT
from tests.mutations.of_security_media import SECURITY_MEDIA
from tests.mutations.of_security_objects import OBJECTS
from tests.mutations.of_security_quotas import SECURITY_QUOTAS
from tests.mutations.of_security_workers import SECURITY_WORKERS
from tests.mutations.of_simulation import NOT_SIMULATED, SIMULATED, SIMULATION
from tests.mutations.of_sqlite import SQLITE
from tests.mutations.of_storm import STORM
from tests.mutations.of_studio import STUDIO
from tests.mutations.of_studio_letter import STUDIO_LETTER
from tests.mutations.of_vault import VAULT
from tests.mutations.of_worker import WORKER
from tests.mutations.warm import WarmPython

TESTS_FAILED = 1
NOT_FOR_THEM = ("CALLSHEET_DEEP", "PYTHONDONTWRITEBYTECODE")  # a test must mind as it runs in `make test`
PLUGINS = (
    "asyncio",
    "timeout",
    "hypothesispytest",
)  # what these tests need; to load all takes longer than most of them
OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "--disable-plugin-autoload", *(f"-p{name}" for name in PLUGINS))
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
    *SECURITY_BYTES,
    *SECURITY_FLOODS,
    *SECURITY_WORKERS,
    *SECURITY_CLIENTS,
    *LETTER_CORTANA,
    *LETTER_EUTERPE_STATES,
    *LETTER_REDIS_GATEWAY,
    *OUTAGES,
    *STUDIO_LETTER,
    *EUTERPE_LETTER,
    *PLANE_LETTER,
    *AURA_LETTER,
    *ANY_TASK,
    *CLOCK,
    *SIMULATION,
    *STORM,
]
ONE_IN = 8
GUARDS = ALL if os.environ.get("CALLSHEET_DEEP") else ALL[::ONE_IN]  # each is a test run; `make mutations` has all


@pytest.fixture(scope="module")
def python() -> Iterator[WarmPython]:
    with WarmPython.start() as python:
        yield python


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of program and tests with all guards. Compiled files stay in this copy for later runs."""
    whole = tmp_path_factory.mktemp("whole")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, whole / folder)
    shutil.copy(ROOT / "pyproject.toml", whole)
    return whole


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: f"{guard.store}:{guard.name}".replace(" ", "-"))
def test_a_removed_guard_turns_its_test_red(guard: Guard, tmp_path: Path, python: WarmPython, whole: Path) -> None:
    lay([guard], tmp_path, whole)
    environment = {name: value for name, value in os.environ.items() if name not in NOT_FOR_THEM}
    environment["PYTHONPATH"] = f"{tmp_path / 'src'}:{tmp_path}"
    if guard.store == "postgres":
        environment["CALLSHEET_TEST_POSTGRES_URL"] = stores.postgres_server().url()  # a new one would take 2 s
    which = ["-k", guard.store] if guard.store != "kernel" else []
    run = python.run([*OPTIONS, *guard.test.split(), *which], tmp_path, environment)
    assert run.code == TESTS_FAILED, f"without this guard {guard.test} says:\n{run.output}\n{run.errors}"
    assert "failed" in run.output.splitlines()[-1]
    assert "error" not in run.output.splitlines()[-1]


def test_the_docstring_says_how_many_guards_are_tried() -> None:
    assert f"`ONE_IN` ({ONE_IN})" in (__doc__ or "")


def test_the_simulation_minds_the_guards_of_the_worker() -> None:
    minded = {(guard.file, guard.before) for guard in SIMULATION}
    own = {guard.name: (guard.file, guard.before) for guard in (*WORKER, *OUTAGES) if guard.file in SIMULATED}
    assert {name for name, text in own.items() if text not in minded} == set(NOT_SIMULATED)


@pytest.mark.parametrize("guard", ALL, ids=lambda guard: f"{guard.store}:{guard.name}".replace(" ", "-"))
def test_a_guard_stands_where_it_is_listed(guard: Guard) -> None:
    assert (ROOT / "src" / "callsheet" / guard.file).read_text("utf-8").count(guard.before) == guard.times
