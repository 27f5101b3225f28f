"""Finding destinations with waiting events costs the same, however long one backlog is."""

from __future__ import annotations

import sqlite3
from importlib.resources import files

from callsheet.store.queries import Queries

PACKAGE = "callsheet.store.sqlite"
Q = Queries(PACKAGE)
ADD = (
    "INSERT INTO job_outbox_events (event_id, job_id, requester_id, endpoint, body, run_at, created_at, destination)"
    " VALUES (?, 'j', ?, 'e', '', 1, 1, ?)"
)


def database(backlog: int) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.executescript(files(PACKAGE).joinpath("schema.sql").read_text("utf-8"))
    db.executemany(ADD, [(f"b{n}", "one", "m") for n in range(backlog)])
    db.executemany(ADD, [(f"{who}{where}", who, where) for who in ("none", "one", "two") for where in "azm"])
    return db


def steps_of(db: sqlite3.Connection, sql: str) -> int:
    """Return the number of SQLite's instructions for a statement, in hundreds."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    db.set_progress_handler(count, 100)
    try:
        db.execute(sql).fetchall()
    finally:
        db.set_progress_handler(None, 0)
    return steps


def test_destinations_are_found_by_jumps() -> None:
    few, many = database(1), database(20_000)
    rows_wanted = [(who, where) for who in ("none", "one", "two") for where in "amz"]
    assert many.execute(Q.outbox_destinations).fetchall() == rows_wanted
    assert steps_of(many, Q.outbox_destinations) <= steps_of(few, Q.outbox_destinations) + 1
    assert steps_of(many, "SELECT sum(seq) FROM job_outbox_events") > 100, "it counts"
