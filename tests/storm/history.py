"""A storm's history: facts as JSON lines, which every part of it writes and the checker reads.

several processes append to `history.jsonl` during the storm: one write per line, so that a kill cannot split a line.
`end.jsonl` is what the store held at the end. `at` is the machine's monotonic clock in microseconds, which is one for
all processes and which no fault steps.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

FOLDER = "STORM_FOLDER"
Fact = dict[str, Any]


def now_us() -> int:
    """Return the current time in the history's unit."""
    return time.monotonic_ns() // 1_000


def note(kind: str, **facts: Any) -> None:
    """Append one fact to the history that the environment names."""
    append(Path(os.environ[FOLDER], "history.jsonl"), [{"fact": kind, "at": now_us(), **facts}])


def append(path: Path, facts: Iterable[Fact]) -> None:
    """Append facts to a file, all in one write."""
    text = "".join(f"{json.dumps(fact)}\n" for fact in facts)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def read_lines(path: Path, offset: int = 0) -> tuple[list[Fact], int]:
    """Return the whole lines of a file after an offset, and where the next one begins."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole)


@dataclass
class History:
    """What happened (`facts`) and what came of it (`jobs`, `attempts`, `events`, `callbacks`, the rest of the end)."""

    facts: list[Fact] = field(default_factory=list)
    end: list[Fact] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> History:
        """Return the history that a run left in a folder."""
        return cls(read_lines(folder / "history.jsonl")[0], read_lines(folder / "end.jsonl")[0])

    def of(self, kind: str) -> list[Fact]:
        """Return the facts of one kind in the order of their writing."""
        return self._by_kind.get(kind, [])

    @cached_property
    def _by_kind(self) -> dict[str, list[Fact]]:
        return grouped(self.facts, "fact")

    @cached_property
    def _end_by_kind(self) -> dict[str, list[Fact]]:
        return grouped(self.end, "fact")

    @cached_property
    def jobs(self) -> dict[str, Fact]:
        """The jobs of the end by id."""
        return {job["job_id"]: job for job in self._end_by_kind.get("job", [])}

    @cached_property
    def attempts(self) -> dict[str, list[Fact]]:
        """Return each job's attempts by id, in claim order."""
        result = grouped(self._end_by_kind.get("attempt", []), "job_id")
        return {job_id: sorted(some, key=lambda one: one["claim_version"]) for job_id, some in result.items()}

    @cached_property
    def events(self) -> dict[str, list[Fact]]:
        """Return each job's events in store order."""
        return grouped(self._end_by_kind.get("event", []), "job_id")

    @cached_property
    def callbacks(self) -> dict[str, list[Fact]]:
        """Return each job's outbox rows."""
        return grouped(self._end_by_kind.get("callback", []), "job_id")

    def last(self, kind: str) -> Fact:
        """Return the last fact of a kind from the end; empty if absent."""
        return (self._end_by_kind.get(kind) or [{}])[-1]

    @cached_property
    def executions(self) -> dict[tuple[str, int], Fact]:
        """For each claim that began to run: its `began` time, and its `returned` time if any."""
        by_name: dict[tuple[str, int], Fact] = {}
        for fact in self.of("began"):
            by_name.setdefault((fact["job"], fact["claim"]), {"began": fact["at"]})
        for fact in self.of("returned"):
            by_name.setdefault((fact["job"], fact["claim"]), {})["returned"] = fact["at"]
        return by_name

    def winner(self, job_id: str) -> Fact | None:
        """Return the attempt that succeeded, None when none did."""
        winners = [one for one in self.attempts.get(job_id, []) if one["outcome"] == "succeeded"]
        return winners[0] if winners else None

    def work_ended_at(self, job_id: str) -> int | None:
        """Return when the function of the attempt that succeeded returned: the job's success was written after that."""
        winner = self.winner(job_id)
        return None if winner is None else self.executions.get((job_id, winner["claim_version"]), {}).get("returned")

    @cached_property
    def made(self) -> dict[str, Fact]:
        """For each acknowledged job the fact that asked for it, by the job's id."""
        body = {fact["key"]: fact for fact in self.of("asked")}
        return {fact["job"]: body[fact["key"]] for fact in self.of("acknowledged") if fact["key"] in body}


def grouped(facts: Iterable[Fact], name: str) -> dict[str, list[Fact]]:
    """Group facts by a field's value."""
    results: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        results[fact[name]].append(fact)
    return dict(results)
