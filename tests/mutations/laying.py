"""Copies the program without some guards, for a test run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.mutations.guard import Guard

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "tools")


def lay(guards: Sequence[Guard], target: Path, whole: Path = ROOT) -> None:
    """Lay out the program and tests as links, except for changed files, so that only these are compiled.

    `whole` is the complete copy with all guards.
    """
    changes = {("callsheet", *guard.file.split("/")) for guard in guards}
    _lay(whole / "src", target / "src", changes)
    for folder in FOLDERS[1:]:
        (target / folder).symlink_to(whole / folder)
    shutil.copy(whole / "pyproject.toml", target)
    for guard in guards:
        _remove(guard, target / "src" / "callsheet" / guard.file)


def variables(target: Path) -> dict[str, str]:
    """Return the environment variables with which a process runs the laid-out copy."""
    return {"PYTHONPATH": f"{target / 'src'}:{target}", "PYTHONDONTWRITEBYTECODE": "1"}


def _remove(guard: Guard, source: Path) -> None:
    text = source.read_text("utf-8")
    assert text.count(guard.before) == guard.times, f"{guard.file} has not {guard.times} × {guard.before!r} any more"
    source.write_text(text.replace(guard.before, guard.after), "utf-8")


def _lay(source: Path, target: Path, changed_files: set[tuple[str, ...]]) -> None:
    target.mkdir()
    for entry in source.iterdir():
        inside = {path[1:] for path in changed_files if path[0] == entry.name}
        if entry.name == "__pycache__":
            _lay_compiled(entry, target / entry.name, {path[0].removesuffix(".py") for path in changed_files})
        elif not inside:
            (target / entry.name).symlink_to(entry)
        elif entry.is_dir():
            _lay(entry, target / entry.name, inside)
        else:
            shutil.copy(entry, target / entry.name)


def _lay_compiled(source: Path, target: Path, changed_files: set[str]) -> None:
    """Lay a folder of its own, where what becomes of the changed files reaches nobody else."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.name.partition(".")[0] not in changed_files:
            (target / entry.name).symlink_to(entry)
