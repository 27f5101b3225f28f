"""A short storm on each store, with a fixed seed: equal work and equal faults on any machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import seaweed, stores
from tests.storm.checker import check
from tests.storm.history import FOLDER, History
from tests.storm.plan import short_plan
from tests.storm.run import storm

SEED, JOBS = 20_261_118, 12
pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("kind", stores.THREE)
async def test_a_short_storm_breaks_no_promise(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    plan = short_plan(SEED, kind, JOBS)
    lines: list[str] = []
    counts = await storm(plan, tmp_path, lines.append, s3=seaweed.s3_server())
    history = History.read(tmp_path)
    assert check(history) == [], "\n".join(lines)
    assert sum(counts.values()) == len(plan.faults)
    assert len(history.made) >= JOBS  # unique keys make one job of several orders
    assert history.of("watched")
    assert history.of("received")
