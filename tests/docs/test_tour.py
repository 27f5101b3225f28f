"""The tour names existing files in the right folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "callsheet"
TOUR = (ROOT / "docs" / "tour.md").read_text("utf-8")
STOPS = re.findall(r"^\d+\. .*?(?=^\d+\. |^## )", TOUR, re.DOTALL | re.MULTILINE)
FILE = re.compile(r"[\w./-]+\.(?:py|lua|sql|js|md)")


def folders_of(stop: str) -> set[Path]:
    """Return the folders of a stop of the tour: folders of its named files, or folders named directly."""
    names = [name for name in re.findall(r"`([\w./-]+)`", stop) if "/" in name and name[0] != "/"]
    results = {base / (name if name.endswith("/") else Path(name).parent) for name in names for base in (SRC, ROOT)}
    return {folder for folder in results if folder.is_dir() and folder not in (SRC, ROOT)}


def is_there(name: str, stop: str) -> bool:
    """Return whether a file exists below a stop's folders or at the program's top."""
    if (SRC / name).exists() or (ROOT / name).exists():
        return True
    return any(next(folder.rglob(name), None) for folder in folders_of(stop))


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.partition(".")[0])
def test_a_stop_names_files_that_exist(stop: str) -> None:
    files_named = [name for name in re.findall(r"`([^`]+)`", stop) if FILE.fullmatch(name)]
    assert files_named
    assert [name for name in files_named if not is_there(name, stop)] == []


def test_the_table_of_where_to_find_names_files_that_exist() -> None:
    table = TOUR.partition("## Where to find")[2].partition("\n## ")[0]
    names = re.findall(r"`([\w./-]+(?:/|\.(?:py|lua|sql|md)))`", table)
    assert names
    assert [name for name in names if not (SRC / name).exists() and not (ROOT / name).exists()] == []


def test_every_folder_of_the_program_is_on_the_way() -> None:
    packages = {path.parent.name for path in SRC.glob("*/__init__.py")}
    assert [name for name in sorted(packages) if not re.search(rf"`{name}[/`]", TOUR)] == []


def test_every_folder_of_tests_is_in_the_table() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py"))}
    assert [name for name in sorted(folders) if f"`tests/{re.sub('^store_.*', 'store_*', name)}`" not in TOUR] == []


def test_a_missing_file_is_seen() -> None:
    stop = STOPS[0]
    assert not is_there("no_such_file.py", stop)
    assert not is_there("kernel/no_such_file.py", stop)
