"""`docs/guides/metrics.md` lists every metric that the code creates, with its name in Prometheus, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from callsheet.engine import telemetry
from callsheet.kernel.job import Outcome

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "metrics.md").read_text("utf-8")
CREATED = re.compile(r'(?:create_(\w+)|_(gauge))\(\s*"(callsheet\.[a-z._]+)",\s*"([^"]*)"')
ROW = re.compile(r"^\| `(callsheet\.[a-z._]+)` \| `(callsheet_[a-z_]+)` \| (.*)$", re.MULTILINE)
MADE_OF = r"_(?:bucket|count|sum)$"
SUFFIX = {"s": "_seconds"}


def created() -> dict[str, str]:
    """Return the metrics created in the source, with their Prometheus names."""
    by_name = {}
    for path in (ROOT / "src").rglob("*.py"):
        for kind, gauge, name, unit in CREATED.findall(path.read_text("utf-8")):
            total = "_total" if (kind or gauge) == "counter" else ""
            by_name[name] = name.replace(".", "_") + SUFFIX.get(unit, "") + total
    return by_name


def test_every_metric_is_in_the_table_and_every_row_is_a_metric() -> None:
    assert len(created()) == 26
    assert {name: prometheus for name, prometheus, _ in ROW.findall(PAGE)} == created()


def test_rules_name_only_metrics_that_there_are() -> None:
    metrics_named = {re.sub(MADE_OF, "", name) for name in re.findall(r"\bcallsheet_[a-z_]+", PAGE)}
    assert metrics_named == set(created().values())


def test_every_fact_and_outcome_is_in_its_row() -> None:
    rows = {name: rest for name, _, rest in ROW.findall(PAGE)}
    assert all(f"`{fact}`" in rows["callsheet.facts"] for fact in telemetry.FACTS)
    assert all(f"`{outcome}`" in rows["callsheet.jobs.ended"] for outcome in telemetry.OUTCOMES)
    assert all(f"`{outcome}`" in rows["callsheet.attempt.duration"] for outcome in set(Outcome) - {Outcome.LEASE_LOST})
