"""The guards of the SQLite store."""

from __future__ import annotations

from tests.mutations.guard import CLAIM, DEPENDENCIES, ENQUEUE, KEEPING, LEASE, OUTBOX, SETTLE, STALE, Guard


def sqlite(name: str, before: str, after: str, test: str, *, file: str = "queries.sql", times: int = 1) -> Guard:
    return Guard("sqlite", name, f"store/sqlite/{file}", before, after, test, times)


FENCE = "WHERE job_id = ?1 AND claim_version = ?2 AND status = ?3 AND (?19 = 0 OR lease_expires_at < ?5)\nRETURNING"

SQLITE = [
    sqlite(
        "fence of ends: version",
        " AND j.claim_version = json_extract(asked.value, '$[1]')\n",
        "\n",
        f"{SETTLE}::test_a_batch_of_ends_is_fenced_one_by_one",
    ),
    sqlite(
        "fence of ends: status",
        "AND j.status = 'running' AND j.concurrency_key IS NULL",
        "AND j.concurrency_key IS NULL",
        f"{SETTLE}::test_a_batch_of_ends_is_fenced_one_by_one",
    ),
    sqlite(
        "ends with a key go one by one",
        "AND j.status = 'running' AND j.concurrency_key IS NULL",
        "AND j.status = 'running'",
        f"{SETTLE}::test_a_batch_of_ends_frees_slots_and_dependents",
    ),
    sqlite("fence of settle: version", FENCE, FENCE.replace("claim_version = ?2", "?2 = ?2"), STALE),
    sqlite(
        "fence of settle: status",
        FENCE,
        FENCE.replace("status = ?3", "?3 = ?3"),
        f"{SETTLE}::test_a_write_after_the_end_is_stale",
    ),
    sqlite(
        "expired only",
        FENCE,
        FENCE.replace("(?19 = 0 OR lease_expires_at < ?5)", "?19 = ?19"),
        f"{LEASE}::test_a_heartbeat_in_between_wins_over_the_reaper",
    ),
    sqlite(
        "fence of heartbeat: version",
        "WHERE job_id = ?1 AND claim_version = ?2 AND status = 'running'\nRETURNING cancel",
        "WHERE job_id = ?1 AND ?2 = ?2 AND status = 'running'\nRETURNING cancel",
        f"{LEASE}::test_a_stale_claim_cannot_heartbeat",
    ),
    sqlite(
        "fence of outbox heartbeat",
        "WHERE event_id = ?1 AND claim_version = ?2 AND status = 'delivering'\nRETURNING 1;\n\n-- name: outbox_settle",
        "WHERE event_id = ?1 AND ?2 = ?2 AND status = 'delivering'\nRETURNING 1;\n\n-- name: outbox_settle",
        OUTBOX,
    ),
    sqlite(
        "fence of outbox settle",
        "WHERE event_id = ?1 AND claim_version = ?2 AND status = 'delivering'\nRETURNING 1;\n\n-- name: outbox_find",
        "WHERE event_id = ?1 AND ?2 = ?2 AND status = 'delivering'\nRETURNING 1;\n\n-- name: outbox_find",
        OUTBOX,
    ),
    sqlite(
        "claim takes only what is in line",
        "WHERE queue = ?1 AND position > 0",
        "WHERE queue = ?1 AND status = 'queued'",
        f"{DEPENDENCIES}::test_a_job_waits_for_all_that_it_depends_on",
        times=2,
    ),
    sqlite("priority", "ORDER BY priority DESC, position LIMIT ?6", "ORDER BY position LIMIT ?6", CLAIM),
    sqlite("delay", "AND held = 'delay' AND run_at <= ?2 ORDER", "AND held = 'delay' AND ?2 = ?2 ORDER", CLAIM),
    sqlite(
        "progress never falls",
        "progress = max(progress, ?7)",
        "progress = ?7",
        f"{SETTLE}::test_progress_never_falls",
    ),
    sqlite(
        "event time never falls",
        "event_ms = CASE WHEN ?18 THEN max(?5, event_ms) ELSE event_ms END",
        "event_ms = CASE WHEN ?18 THEN ?5 ELSE event_ms END",
        f"{SETTLE}::test_times_never_fall_when_the_clock_steps_back",
    ),
    sqlite("prune only the ended", "AND ended_at < ?1\n", "AND ?1 = ?1\n", KEEPING),
    sqlite(
        "delete by claim",
        "WHERE job_id = ?1 AND claim_version = ?2 AND ended_at IS NOT NULL;",
        "WHERE job_id = ?1 AND ?2 = ?2 AND ended_at IS NOT NULL;",
        f"{KEEPING}::test_delete_leaves_a_job_that_moved_since_it_was_read",
    ),
    sqlite(
        "delete only the ended",
        "WHERE job_id = ?1 AND claim_version = ?2 AND ended_at IS NOT NULL;",
        "WHERE job_id = ?1 AND claim_version = ?2;",
        f"{KEEPING}::test_delete_leaves_a_job_that_moved_since_it_was_read",
    ),
    sqlite(
        "slots",
        "SELECT max_running - (",
        "SELECT 99 + max_running - (",
        f"{CLAIM}::test_a_concurrency_key_limits_running_jobs",
    ),
    sqlite(
        "document version",
        "WHERE kind = ?1 AND id = ?2 AND version = ?4 RETURNING",
        "WHERE kind = ?1 AND id = ?2 AND ?4 = ?4 RETURNING",
        KEEPING,
    ),
    sqlite(
        "a requester finds only his own",
        "WHERE requester_id = ?2 AND requester_id <> '' AND seq < ",
        "WHERE ?2 = ?2 AND seq < ",
        ENQUEUE,
    ),
    sqlite(
        "idempotency expires",
        "AND idempotency_key = ?2 AND expires_at > ?3",
        "AND idempotency_key = ?2 AND ?3 = ?3",
        ENQUEUE,
    ),
    sqlite(
        "idempotency hash",
        "if row[0] != new.idempotency.request_hash:",
        "if row[0] is None:",
        f"{ENQUEUE}::test_the_same_key_with_another_request_is_a_conflict",
        file="enqueue.py",
    ),
    sqlite("unique key", "if new.unique_key is not None:", "if new.unique_key == 0:", ENQUEUE, file="enqueue.py"),
    sqlite(
        "dependency is known",
        "if row is None:\n            raise",
        "if row is None:\n            continue\n            raise",
        ENQUEUE,
        file="enqueue.py",
    ),
    sqlite(
        "pause",
        "if queue in paused_queues or",
        "if",
        f"{CLAIM}::test_a_paused_queue_hands_out_nothing",
        file="claim.py",
    ),
    sqlite(
        "a failed dependency does not free",
        "if status is not Status.SUCCEEDED and on_failure == OnDependencyFailure.CANCEL:",
        "if status is None:",
        DEPENDENCIES,
        file="line.py",
    ),
    sqlite(
        "a dependency counts once",
        "        db.execute(Q.undepend, (parent, job_id))\n",
        "",
        f"{DEPENDENCIES}::test_a_dependency_counts_once_however_often_it_ends",
        file="line.py",
    ),
    sqlite(
        "outcome is repeated only if it is the same",
        "if row and row[0] == s.outcome.value else",
        "if row else",
        SETTLE,
        file="settle.py",
    ),
    sqlite(
        "one error is its own",
        '        db.execute("ROLLBACK TO work")\n',
        "        pass\n",
        ENQUEUE,
        file="connection.py",
    ),
    sqlite(
        "a stale move writes no outbox row",
        "    if row is None:\n        return _repeat_or_stale(db, s)\n    event_seq",
        "    if row is None:\n        for out in s.outbox:\n"
        "            db.execute(Q.add_outbox, (out.event_id, s.job_id, '', out.endpoint, out.body, now, ''))\n"
        "        return _repeat_or_stale(db, s)\n    event_seq",
        STALE,
        file="settle.py",
    ),
]
