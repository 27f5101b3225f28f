"""Guards of the catalogue: the writers' fence, and row visibility."""

from __future__ import annotations

from tests.mutations.guard import Guard

FENCE = "tests/catalog/test_fence.py::test_an_earlier_writer_writes_nothing"
ISOLATION = "tests/catalog/test_isolation.py"
ROWS = "tests/catalog/test_row_security.py"


def sqlite(name: str, before: str, after: str, test: str, times: int = 1) -> Guard:
    return Guard("sqlite", f"catalogue, {name}", "catalog/sqlite/queries.sql", before, after, test, times)


def postgres(name: str, before: str, after: str, test: str, times: int = 1) -> Guard:
    return Guard("postgres", f"catalogue, {name}", "catalog/postgres/queries.sql", before, after, test, times)


def rows(name: str, file: str, before: str, after: str, test: str) -> Guard:
    return Guard("kernel", f"catalogue, {name}", f"catalog/postgres/{file}", before, after, test)


CATALOG = [
    sqlite("fence: claim", "THEN writer_claim_version <= ?3", "THEN 1", FENCE, 2),
    sqlite("fence: job", "ELSE writer_job_id < ?2 END", "ELSE 1 END", FENCE, 2),
    sqlite("fence: clock", "THEN writer_created_at < ?4", "THEN writer_job_id < ?2", FENCE, 2),
    sqlite(
        "segments are seen by theirs",
        "FROM segments\nWHERE video_id = ?1 AND (?2 OR",
        "FROM segments\nWHERE video_id = ?1 AND (1 OR",
        ISOLATION,
    ),
    sqlite("nobody owns what has no owner", " AND ?3 <> ''", "", ISOLATION, 5),
    postgres("fence: claim", "THEN writer_claim_version <= $3", "THEN true", FENCE, 2),
    postgres("fence: job", "ELSE writer_job_id < $2 END", "ELSE true END", FENCE, 2),
    postgres(
        "segments are seen by theirs",
        "FROM segments\nWHERE video_id = $1 AND ($2::boolean OR",
        "FROM segments\nWHERE video_id = $1 AND ($2::boolean OR true OR",
        ISOLATION,
    ),
    rows(
        "policies of segments",
        "access.sql",
        "CREATE POLICY readers ON segments FOR SELECT TO authenticated, service_role\n    USING (",
        "CREATE POLICY readers ON segments FOR SELECT TO authenticated, service_role\n    USING (true OR ",
        f"{ROWS}::test_readers_see_their_own_rows_and_their_teams",
    ),
    rows(
        "policies hold",
        "migrations/0001_catalog.sql",
        "ALTER TABLE search_materialized ENABLE ROW LEVEL SECURITY;",
        "",
        f"{ROWS}::test_readers_see_their_own_rows_and_their_teams",
    ),
]
