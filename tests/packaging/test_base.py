"""`pip install callsheet` is the engine, the worker, SQLite, the client and the command line; the rest are extras.

The wheel is built and installed into a virtual environment of its own, with what requirements/base.txt pins.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_PACKAGES = 16
MOST_BYTES = 40 * 1024 * 1024
NEVER_NEEDED = {"pydantic", "httpx2", "click", "asyncpg", "redis", "fastapi", "cryptography"}
INSTALL = ["uv", "pip", "install"] if shutil.which("uv") else [sys.executable, "-m", "pip", "--python"]


def run(*command: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("CALLSHEET_", "PYTHONPATH"))}
    return subprocess.run(list(map(str, command)), cwd=cwd, env=environ, capture_output=True, text=True, check=False)


def installed(python: Path, *what: str) -> None:
    where = [*INSTALL, "--python", python] if INSTALL[0] == "uv" else [*INSTALL, python, "install", "--quiet"]
    process = run(*where, *what)
    assert process.returncode == 0, process.stderr


class Base:
    """A virtual environment with Callsheet and its base dependencies only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        (self.packages,) = (folder / "lib").glob("python*/site-packages")

    def callsheet(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(self.folder / "bin" / "callsheet", *words, cwd=self.folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    folder = tmp_path_factory.mktemp("base")
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist")
    assert built.returncode == 0, built.stderr
    venv.create(folder / "venv", with_pip=False)
    base = Base(folder / "venv")
    (wheel,) = (folder / "dist").glob("*.whl")
    installed(base.python, "--require-hashes", "-r", "requirements/base.txt")
    installed(base.python, "--no-deps", str(wheel))
    return base


def test_the_base_is_light(base: Base) -> None:
    packages = {path.name.split("-")[0] for path in base.packages.glob("*.dist-info")} - {"callsheet"}
    assert len(packages) <= MOST_PACKAGES, sorted(packages)
    assert sum(path.stat().st_size for path in base.packages.rglob("*") if path.is_file()) <= MOST_BYTES


def test_the_first_code_of_the_readme_runs_on_the_base(base: Base, tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)[0]
    (tmp_path / "jobs.py").write_text(code, "utf-8")
    process = run(base.python, "jobs.py", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout == "{'width': 640}\n"


def test_an_app_is_imported_without_what_it_may_never_need(base: Base) -> None:
    code = "import sys, callsheet; callsheet.Callsheet; print(*sys.modules)"
    loaded_modules = set(run(base.python, "-c", code).stdout.split())
    assert "callsheet.app" in loaded_modules
    assert loaded_modules & NEVER_NEEDED == set()


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "worker --help",
        "enqueue --help",
        "watch --help",
        "ask --help",
        "migrate",
        "jobs list",
        "jobs dead",
        "doctor",
    ],
)
def test_a_command_runs_on_the_base(base: Base, words: str) -> None:
    result = base.callsheet("migrate", "--database-url", "sqlite:///base.db")
    assert result.returncode == 0, result.stderr
    store = [] if "--help" in words else ["--database-url", "sqlite:///base.db"]
    result = base.callsheet(*words.split(), *store)
    assert "Traceback" not in result.stdout + result.stderr
    assert "No module named" not in result.stdout + result.stderr
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("serve", "server"),
        ("up", "server"),
        ("workers list", "server"),
        ("jobs list --database-url postgresql://127.0.0.1/none", "postgres"),
        ("jobs list --database-url redis://127.0.0.1/0", "redis"),
        ("migrate --database-url libsql:///none.db", "libsql"),
    ],
)
def test_a_missing_extra_is_named(base: Base, words: str, extra: str) -> None:
    result = base.callsheet(*words.split())
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"pip install 'callsheet[{extra}]'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from callsheet.objects import objects_from_url; objects_from_url('s3://bucket')", "server"),
        ("from callsheet.objects import objects_from_url; objects_from_url('memory:')", "server"),
        (
            (
                "from callsheet.vault import Secret, Binding, envelope; "
                "envelope.encrypt(Secret('x'), envelope.new_dek(), Binding('j', '', 1))"
            ),
            "server",
        ),
    ],
)
def test_what_the_library_lacks_is_named(base: Base, code: str, extra: str) -> None:
    process = run(base.python, "-c", code)
    assert "MissingExtra" in process.stderr
    assert f"pip install 'callsheet[{extra}]'" in process.stderr
