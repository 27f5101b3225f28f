from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from callsheet.engine import Engine
from callsheet.store.protocol import JobQuery

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_code_of_the_readme_is_twelve_lines_and_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n# jobs.py\n(.*?)```", README, re.DOTALL)
    (output,) = re.findall(r"```console\n\$ python jobs.py\n(.*?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) == 12
    assert code.rstrip().splitlines()[-2] == 'if __name__ == "__main__":'  # a worker that imports it does not run it
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == output
    event_types = ["queued", "running", "progress", "done"]
    assert asyncio.run(events_of(f"sqlite:///{tmp_path / 'jobs.db'}")) == event_types


async def events_of(url: str) -> list[str]:
    """Return the event types of the only job."""
    async with Engine.from_url(url) as engine:
        (job,) = (await engine.find(JobQuery())).jobs
        return [event.type async for event in engine.watch(job.job_id)]


def test_the_readme_shows_the_studio_the_peers_all_contracts_and_all_promises() -> None:
    pictures = [ROOT / path for path in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)]
    assert [picture.name for picture in pictures] == ["studio.png", "peers.png"]
    assert all(picture.read_bytes()[:4] == b"\x89PNG" for picture in pictures)
    assert (ROOT / "docs" / "images" / "studio.png").stat().st_size <= 200_000
    for page in (*(ROOT / "docs" / "contracts").glob("*.md"), *(ROOT / "docs" / "guides").glob("*.md")):
        assert f"({page.relative_to(ROOT)})" in README
    promised = re.findall(r"^\| (G\d) \|.*\(tests/", README, re.MULTILINE)
    assert promised == [f"G{n}" for n in range(1, 10)]


def test_the_readme_has_nine_features_with_links_and_a_table_beside_four_others() -> None:
    features = re.findall(r"^- \*\*\[[^\]]+\]\(docs/", README, re.MULTILINE)
    assert len(features) == 9
    assert "| | Callsheet | Celery | DBOS | River | BullMQ |" in README
    assert "**When not to use it.**" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\((?!https?:|object:)([^)#]+)", text):
        assert (page.parent / target).exists(), target
    for path in re.findall(r"`((?:tests|bench|docs|src)/[\w./]+?)(?:::\w+)?`", text):
        assert (ROOT / path).exists() or list(ROOT.glob(f"{path}*")), path


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    names = {name for page in PAGES for name in re.findall(r"`make ([a-z]+)", page.read_text("utf-8"))}
    assert names <= targets


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "adr").glob("*.md")), ids=lambda page: page.name)
def test_a_decision_is_short_and_says_what_enforces_it(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(text.splitlines()) <= 40
    assert "**Enforced by**" in text
