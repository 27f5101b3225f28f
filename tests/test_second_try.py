"""`make test` tries a failed test once more, tells of it, and is red when that happens often. Seen in child runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TOLD = "failed once, then passed: look at these"
# Only these: to load the others takes longer than these tests.
PLUGINS = ("tests.second_try", "rerunfailures", "timeout", "asyncio", "xdist")
HEAD = """
import asyncio, time
from pathlib import Path
import pytest

def first(name):
    mark = Path(__file__).with_name(f"{name}.mark")
    seen = mark.exists()
    mark.touch()
    return not seen
"""
NOISE = """
@pytest.mark.parametrize("n", range({count}))
def test_noise(n):
    assert not first(f"noise{{n}}"), f"the machine was busy with {{n}}"
"""
FIXTURES = """
made = []

@pytest.fixture(scope="session")
def server():
    made.append("server")
    yield "up"
    made.append("server ends")

@pytest.fixture
async def client(server):
    assert not first("client"), "no connection yet"
    made.append("client")
    yield server
    made.append("client ends")
    assert not first("leaving"), "it would not close"

async def test_a_call(client):
    assert client == "up"
    await asyncio.sleep(0)
    assert not first("call"), "the answer was late"

def test_all_was_made_and_ended_as_often_as_it_should(server):
    assert made == ["server", *["client", "client ends"] * MADE], made
"""


class Run(NamedTuple):
    """How a child run ended."""

    code: int
    said: str

    @property
    def told(self) -> list[str]:
        """Return the lines below our heading."""
        _, _, below = self.said.partition(f" {TOLD} ")
        return re.findall(r"^\S*test_\S+ \(\w+\): .*$", below, re.MULTILINE)


def options() -> list[str]:
    """Return the options of `make test`, read from the Makefile."""
    process = subprocess.run(
        ["make", "-pn", "help"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    ).stdout
    match = re.search(r"^SECOND_TRY := (.*)$", process, re.MULTILINE)
    assert match
    return re.sub(r"\$\(addprefix (.*?),(.*?)\)", _prefixed, match[1]).split()


def _prefixed(match: re.Match[str]) -> str:
    return " ".join(f"{match[1]}{word}" for word in match[2].split())


def run(folder: Path, files: dict[str, str], *words: str) -> Run:
    """Run some files of tests, as `make test` would."""
    for name, text in files.items():
        file = folder / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(HEAD + text)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    plugins = [part for name in PLUGINS for part in ("-p", name)]
    command = [sys.executable, "-m", "pytest", "--import-mode=importlib", *plugins, "--rootdir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    process = subprocess.run(
        [*command, *options(), *words, str(folder / "tests")],
        cwd=folder,
        env={name: value for name, value in environment.items() if "XDIST" not in name},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return Run(process.returncode, process.stdout + process.stderr)


def test_noise_does_not_stop_a_run_and_is_told_with_its_reason(tmp_path: Path) -> None:
    process = run(tmp_path, {"test_noise.py": NOISE.format(count=5)}, "-n", "2")
    assert process.code == 0, process.said
    assert len(process.told) == 5, process.said
    assert "test_noise[3] (call): AssertionError: the machine was busy with 3" in process.said


def test_the_sixth_in_one_run_is_red(tmp_path: Path) -> None:
    process = run(tmp_path, {"test_noise.py": NOISE.format(count=6)}, "-n", "2")
    assert process.code == 1, process.said
    assert re.search(r"1 failed, 5 passed, .*5 rerun", process.said.splitlines()[-1]), process.said


def test_what_fails_twice_is_red_and_not_called_noise(tmp_path: Path) -> None:
    process = run(tmp_path, {"test_always.py": "def test_always():\n    assert first('never') is None\n"})
    assert (process.code, process.told) == (1, []), process.said


def test_where_there_is_no_noise_there_is_one_try(tmp_path: Path) -> None:
    folders = ("architecture", "differential", "docs", "kernel", "mutations", "simulation")
    process = run(tmp_path, {f"{name}/test_noise.py": NOISE.format(count=1) for name in folders})
    assert (process.code, process.told) == (1, []), process.said
    assert "6 failed" in process.said.splitlines()[-1]
    assert "rerun" not in process.said.splitlines()[-1]


def test_fixtures_of_every_kind_are_made_and_ended_as_for_two_tests(tmp_path: Path) -> None:
    files = {}
    for fails, response in (("client", 1), ("call", 2), ("leaving", 2)):
        text = FIXTURES.replace("MADE", str(response))
        for other in {"client", "call", "leaving"} - {fails}:
            text = text.replace(f'first("{other}")', "False")
        files[f"test_{fails}.py"] = text
    process = run(tmp_path, files)
    assert (process.code, len(process.told)) == (0, 3), process.said


def test_a_second_try_has_a_time_limit_of_its_own(tmp_path: Path) -> None:
    process = run(tmp_path, {"test_hangs.py": "def test_hangs():\n    time.sleep(60)\n"}, "--timeout", "1")
    assert process.code == 1, process.said
    assert re.search(r"1 failed, .*1 rerun", process.said.splitlines()[-1]), process.said
