"""The ledger: the current owners of jobs, read from the growing history. Faults are timed by it, never the checker."""

from __future__ import annotations

from pathlib import Path

from tests.storm.history import Fact, read_lines
from tests.storm.orders import LONG_MS

Claim = tuple[str, int]  # a job and the number of its claim


class Ledger:
    """Follows a history. Jobs that were `acknowledged` or `watched` and functions that have `ended` are counted."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self.acknowledged = 0
        self.watched = 0
        self.ended = 0
        self._running: dict[Claim, Fact] = {}
        self._newest: dict[str, Fact] = {}

    def read(self) -> None:
        """Take in what was written since the last time."""
        facts, self._offset = read_lines(self._path, self._offset)
        for fact in facts:
            self._enter(fact)

    def _enter(self, fact: Fact) -> None:
        match fact["fact"]:
            case "acknowledged":
                self.acknowledged += 1
            case "watched":
                self.watched += 1
            case "began":
                self._begin(fact)
            case "returned" | "raised":
                self.ended += 1
                self._running.pop((fact["job"], fact["claim"]), None)
            case "killed" | "exited":
                dead = [claim for claim, run in self._running.items() if run["part"] == fact["part"]]
                for claim in dead:
                    del self._running[claim]

    def _begin(self, fact: Fact) -> None:
        self._running[fact["job"], fact["claim"]] = fact
        newest = self._newest.get(fact["job"])
        if newest is None or newest["claim"] < fact["claim"]:
            self._newest[fact["job"]] = fact

    def held_by(self, part: str, task: str | None = None) -> set[Claim]:
        """Return the long work that a part runs and nobody has taken over, of one task if it is named.

        A lost owner counts until its successor's claim is confirmed.
        """
        long = [run for run in self._running.values() if run["part"] == part and run.get("ms", 0) >= LONG_MS]
        runs = [run for run in long if task in (None, run["task"])]
        return {(run["job"], run["claim"]) for run in runs if self._newest[run["job"]]["claim"] == run["claim"]}

    def heir_of(self, claims: set[Claim]) -> str | None:
        """Return the part that began one of these jobs anew and runs it still; None before a takeover."""
        for job_id, claim in sorted(claims):
            newest = self._newest[job_id]
            if newest["claim"] > claim and (job_id, newest["claim"]) in self._running:
                return str(newest["part"])
        return None
