"""The ledger knows current owners and their successors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.storm.history import append
from tests.storm.ledger import Ledger


def began(job: str, claim: int, part: str, task: str = "count", ms: int = 5_000) -> dict[str, Any]:
    return {"fact": "began", "job": job, "claim": claim, "part": part, "task": task, "ms": ms}


def ledger_of(path: Path, *facts: dict[str, Any]) -> Ledger:
    append(path / "history.jsonl", facts)
    ledger = Ledger(path / "history.jsonl")
    ledger.read()
    return ledger


def test_a_part_holds_what_it_began_until_it_ends(tmp_path: Path) -> None:
    ledger = ledger_of(
        tmp_path, began("a", 1, "worker-0"), began("b", 1, "worker-0", "vigil"), began("c", 1, "worker-1")
    )
    assert ledger.held_by("worker-0") == {("a", 1), ("b", 1)}
    assert ledger.held_by("worker-0", "vigil") == {("b", 1)}
    append(tmp_path / "history.jsonl", [{"fact": "returned", "job": "a", "claim": 1}])
    append(tmp_path / "history.jsonl", [{"fact": "raised", "job": "b", "claim": 1}])
    ledger.read()
    assert not ledger.held_by("worker-0")
    assert ledger.ended == 2


def test_short_work_is_not_held_for_long_enough(tmp_path: Path) -> None:
    assert not ledger_of(tmp_path, began("a", 1, "worker-0", ms=100)).held_by("worker-0")


def test_a_killed_part_holds_nothing(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, began("a", 1, "worker-0"), {"fact": "killed", "part": "worker-0"})
    assert not ledger.held_by("worker-0")


def test_an_heir_is_who_began_a_later_claim_and_runs_it(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, began("a", 1, "worker-0"))
    held = ledger.held_by("worker-0")
    assert ledger.heir_of(held) is None
    append(tmp_path / "history.jsonl", [began("a", 2, "worker-1")])
    ledger.read()
    assert ledger.heir_of(held) == "worker-1"
    assert not ledger.held_by("worker-0")
    append(tmp_path / "history.jsonl", [{"fact": "returned", "job": "a", "claim": 2}])
    ledger.read()
    assert ledger.heir_of(held) is None
