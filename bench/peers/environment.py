"""The peers' environments: pinned by hash in `environments/` and `node/`, built on demand into `.environments/`.

A built environment carries the digest of its pins, so that a changed pin builds it anew.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PINS = HERE / "environments"
NODE = HERE / "node"
ENVIRONMENTS = HERE / ".environments"
NODE_NAME = "node"


class NotHere(Exception):
    """An environment cannot be built on this machine; the message names the reason."""


def build(name: str) -> Path:
    """The program that runs a driver in this environment: its python, or node."""
    return _node() if name == NODE_NAME else _python(name)


def versions(name: str) -> dict[str, str]:
    """Return the pinned versions by package: direct dependencies for Node, the whole list for Python."""
    if name == NODE_NAME:
        return dict(json.loads((NODE / "package.json").read_text("utf-8"))["dependencies"])
    lines = (PINS / f"{name}.txt").read_text("utf-8").splitlines()
    pins = [line.partition(" ")[0].partition("==") for line in lines if "==" in line]
    return {package.partition("[")[0]: version for package, _, version in pins}


def _python(name: str) -> Path:
    pins = PINS / f"{name}.txt"
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not _is_fresh(folder, pins):
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(exist_ok=True)
        _make_python(folder, python, pins)
        _mark(folder, pins)
    return python


def _make_python(folder: Path, python: Path, pins: Path) -> None:
    uv = _uv()
    if uv is not None:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], HERE)
        _run([uv, "pip", "install", "--quiet", "--python", str(python), "--require-hashes", "-r", str(pins)], HERE)
    else:
        _run([sys.executable, "-m", "venv", str(folder)], HERE)
        _run([str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(pins)], HERE)


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def _node() -> Path:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotHere("no node")
    folder = ENVIRONMENTS / NODE_NAME
    lock = NODE / "package-lock.json"
    if not _is_fresh(folder, lock):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(NODE / name, folder / name)
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
        _mark(folder, lock)
    return Path(node)


def modules() -> Path:
    """Where the Node drivers find their packages."""
    return ENVIRONMENTS / NODE_NAME / "node_modules"


def _is_fresh(folder: Path, pins: Path) -> bool:
    mark = folder / ".pins"
    return mark.exists() and mark.read_text("utf-8") == _digest(pins)


def _mark(folder: Path, pins: Path) -> None:
    (folder / ".pins").write_text(_digest(pins), "utf-8")


def _digest(pins: Path) -> str:
    return hashlib.sha256(pins.read_bytes()).hexdigest()


def _run(command: list[str], folder: Path) -> None:
    process = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if process.returncode != 0:
        raise NotHere(f"{Path(command[0]).name} {command[1]} failed: {process.stderr.strip()[-400:]}")
