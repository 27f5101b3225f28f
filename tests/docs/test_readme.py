from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_first_code_of_the_readme_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    result, *lines = run.stdout.splitlines()
    assert result == "{'width': 640}"
    events = [line.split()[1:] for line in lines]
    assert events == [
        ["queued", "0.0"],
        ["running", "0.0"],
        ["progress", "40.0"],
        ["checkpoint", "40.0"],
        ["done", "100.0"],
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\((?!https?:|object:)([^)#]+)", text):
        assert (page.parent / target).exists(), target
    for path in re.findall(r"`((?:tests|bench|docs|src)/[\w./]+?)(?:::\w+)?`", text):
        assert (ROOT / path).exists() or list(ROOT.glob(f"{path}*")), path


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z]+)", page.read_text("utf-8"))}
    assert named <= targets


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "adr").glob("*.md")), ids=lambda page: page.name)
def test_a_decision_is_short_and_says_what_enforces_it(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(text.splitlines()) <= 40
    assert "**Enforced by**" in text
