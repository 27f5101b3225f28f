"""The guards of the PostgreSQL store."""

from __future__ import annotations

from tests.mutations.guard import CLAIM, DEPENDENCIES, ENQUEUE, EVENTS, KEEPING, LEASE, OUTBOX, SETTLE, STALE, Guard


def postgres(name: str, before: str, after: str, test: str, *, file: str = "queries.sql", times: int = 1) -> Guard:
    return Guard("postgres", name, f"store/postgres/{file}", before, after, test, times)


RACES = "tests/store_postgres/test_races.py"
FENCE = "WHERE o.claim_version = a.claim_version AND o.status = a.from_status"

POSTGRES = [
    postgres("fence of settle: version", FENCE, FENCE.replace("o.claim_version =", "a.claim_version ="), STALE),
    postgres(
        "fence of settle: status",
        FENCE,
        "WHERE o.claim_version = a.claim_version",
        f"{SETTLE}::test_a_write_after_the_end_is_stale",
    ),
    postgres(
        "expired only",
        "      AND (a.flags & 16 = 0 OR o.lease_expires_at < a.now)\n",
        "",
        f"{LEASE}::test_a_heartbeat_in_between_wins_over_the_reaper",
    ),
    postgres(
        "the row is the one that was read",
        "WHERE j.ctid = c.row_id AND j.xmin = c.row_version AND NOT special.found",
        "WHERE j.job_id = c.job_id AND NOT special.found",
        f"{LEASE}::test_reaper_and_worker_race_to_one_outcome",
    ),
    postgres(
        "fence of heartbeat: version",
        "    WHERE j.claim_version = a.claim_version AND j.status = 'running'\n), free",
        "    WHERE j.status = 'running'\n), free",
        f"{LEASE}::test_a_stale_claim_cannot_heartbeat",
    ),
    postgres(
        "a heartbeat waits for nobody",
        "FOR NO KEY UPDATE OF j SKIP LOCKED\n), beat",
        "FOR NO KEY UPDATE OF j\n), beat",
        f"{RACES}::test_a_callers_open_transaction_does_not_hold_up_heartbeats",
    ),
    postgres(
        "fence of outbox heartbeat and settle",
        "WHERE o.event_id = a.event_id AND o.claim_version = a.claim_version AND o.status = 'delivering'",
        "WHERE o.event_id = a.event_id AND o.status = 'delivering'",
        OUTBOX,
        times=2,
    ),
    postgres(
        "claim takes only what is in line",
        "AND j.held IS NULL AND j.position >= a.floor\n        ORDER BY j.priority DESC, j.position LIMIT $4",
        "AND j.position >= a.floor\n        ORDER BY j.priority DESC, j.position LIMIT $4",
        f"{DEPENDENCIES}::test_a_job_waits_for_all_that_it_depends_on",
    ),
    postgres(
        "the floor is below what a late commit may bring",
        "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $4::bigint",
        "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) - 0 * $4::bigint",
        "tests/store_postgres/test_floor.py",
    ),
    postgres(
        "priority",
        "ORDER BY j.priority DESC, j.position LIMIT $4::bigint FOR UPDATE SKIP LOCKED",
        "ORDER BY j.position LIMIT $4::bigint FOR UPDATE SKIP LOCKED",
        CLAIM,
    ),
    postgres(
        "delay",
        "WHERE queue = $2 AND status = 'queued' AND held = 'delay' AND run_at <= clock.now",
        "WHERE queue = $2 AND status = 'queued' AND held = 'delay'",
        CLAIM,
    ),
    postgres(
        "pause",
        "WHERE NOT EXISTS (SELECT FROM paused_queues p WHERE p.queue = a.queue) ORDER BY a.ord",
        "ORDER BY a.ord",
        f"{CLAIM}::test_a_paused_queue_hands_out_nothing",
    ),
    postgres(
        "progress never falls",
        "progress = greatest(j.progress, c.progress)",
        "progress = coalesce(c.progress, j.progress)",
        f"{SETTLE}::test_progress_never_falls",
    ),
    postgres(
        "times never fall",
        "greatest(a.now, o.event_ms) AS at",
        "a.now AS at",
        f"{SETTLE}::test_times_never_fall_when_the_clock_steps_back",
    ),
    postgres(
        "prune only the old",
        "ended_at IS NOT NULL AND ended_at < $2::bigint",
        "ended_at IS NOT NULL AND $2::bigint IS NOT NULL",
        KEEPING,
    ),
    postgres(
        "delete by claim",
        "WHERE j.claim_version = a.claim_version AND j.ended_at IS NOT NULL ORDER BY",
        "WHERE a.claim_version IS NOT NULL AND j.ended_at IS NOT NULL ORDER BY",
        f"{KEEPING}::test_delete_leaves_a_job_that_moved_since_it_was_read",
    ),
    postgres(
        "delete only the ended",
        "WHERE j.claim_version = a.claim_version AND j.ended_at IS NOT NULL ORDER BY",
        "WHERE j.claim_version = a.claim_version ORDER BY",
        f"{KEEPING}::test_delete_leaves_a_job_that_moved_since_it_was_read",
    ),
    postgres(
        "slots", "l.max_running - (", "99 + l.max_running - (", f"{CLAIM}::test_a_concurrency_key_limits_running_jobs"
    ),
    postgres(
        "slots are counted under a lock",
        "    await session.fetch(Q.lock_slots, keys)\n",
        "",
        f"{RACES}::test_admission_waits_for_the_lock_of_its_key",
        file="line.py",
    ),
    postgres(
        "document version", "AND id = $2 AND version = $4 RETURNING", "AND id = $2 AND $4 = $4 RETURNING", KEEPING
    ),
    postgres(
        "a requester finds only his own",
        "WHERE r.requester_id = $2 AND r.requester_id <> ''",
        "WHERE $2::text IS NOT NULL",
        ENQUEUE,
    ),
    postgres(
        "idempotency expires",
        "WHERE k.expires_at > coalesce($1::bigint,",
        "WHERE k.expires_at > 0 * coalesce($1::bigint,",
        ENQUEUE,
    ),
    postgres(
        "idempotency hash",
        "if row[2] != new.idempotency.request_hash:",
        "if row[2] is None:",
        f"{ENQUEUE}::test_the_same_key_with_another_request_is_a_conflict",
        file="enqueue.py",
    ),
    postgres(
        "unique key",
        "CREATE UNIQUE INDEX inbox_jobs_active_unique_key",
        "CREATE INDEX inbox_jobs_active_unique_key",
        f"{ENQUEUE}::test_a_unique_key_finds_the_active_job",
        file="migrations/0001_engine.sql",
    ),
    postgres(
        "jobs of one statement are alike",
        "if len(batch) > 1 and not all(map(is_uniform, (kinds, *others))):",
        "if False:",
        f"{ENQUEUE}::test_each_job_of_a_batch_is_stored_as_it_is",
        file="enqueue.py",
    ),
    postgres("dependency is known", "if parent not in statuses:", "if False:", ENQUEUE, file="enqueue.py"),
    postgres(
        "enqueue waits for the end of a dependency",
        "UPDATE inbox_jobs j SET has_dependents = true FROM parents p WHERE j.job_id = p.job_id\n"
        "RETURNING j.job_id, j.status;",
        "SELECT j.job_id, j.status FROM inbox_jobs j JOIN parents p ON j.job_id = p.job_id;",
        RACES,
    ),
    postgres(
        "a failed dependency does not free",
        "failed = status is not Status.SUCCEEDED\n    broken",
        "failed = False\n    broken",
        DEPENDENCIES,
        file="line.py",
    ),
    postgres(
        "a dependency counts once",
        "        await session.execute(Q.undepend, parent, [c[0] for c in freed_jobs])\n",
        "",
        f"{DEPENDENCIES}::test_a_dependency_counts_once_however_often_it_ends",
        file="line.py",
    ),
    postgres("outcome is repeated only if it is the same", " AND t.outcome = a.outcome\n", "\n", SETTLE),
    postgres(
        "a plain success names its claim",
        "      AND j.claim_version = ($3::integer[])[",
        "      AND 0 < ($3::integer[])[",
        SETTLE,
    ),
    postgres(
        "a plain success ends what runs", "      AND j.status = (SELECT running FROM asked) AND", "      AND", SETTLE
    ),
    postgres(
        "a plain success frees its slot", "j.concurrency_key IS NULL AND NOT j.has", "NOT j.has", "tests/conformance"
    ),
    postgres("a plain success keeps how its attempt began", " AND (j.began_ms IS NULL OR j.progress = 0)", "", EVENTS),
    postgres(
        "a plain success keeps what its event says",
        "      AND j.stage = $5::jsonb",
        "      AND 'x' <> $5::jsonb",
        EVENTS,
    ),
    postgres(
        "each success has its own result",
        "WHEN 1 THEN 0 ELSE width_bucket(j.job_id, (SELECT ids FROM asked)) - 1 END\n    WHERE",
        "WHEN 1 THEN 0 ELSE 0 END\n    WHERE",
        SETTLE,
    ),
    postgres(
        "no success was applied",
        "coalesce(array_agg(job_id), '{}') END FROM moved",
        "array_agg(job_id) END FROM moved",
        f"{SETTLE}::test_an_unknown_job_is_stale",
    ),
    postgres("what is usual is told", "NULLIF(j.attempt_count, 1)", "NULLIF(j.attempt_count, 0)", CLAIM),
    postgres(
        "a report writes down how the attempt began",
        " FROM moved WHERE began_ms IS NOT NULL\n",
        " FROM moved WHERE false\n",
        EVENTS,
    ),
    postgres("a plain success frees its dependents", " AND NOT j.has_dependents", "", DEPENDENCIES),
    postgres(
        "due jobs that are gone hide no queue",
        "if passed_over:",
        "if False:",
        f"{RACES}::test_due_jobs_that_others_take_meanwhile_hide_no_queue_behind_them",
        file="claim.py",
    ),
    postgres(
        "dependents are locked in order",
        "ORDER BY j.job_id FOR UPDATE OF j;",
        "AND false FOR UPDATE OF j;",
        f"{RACES}::test_batches_that_free_the_same_children_crosswise_do_not_wait_for_each_other",
    ),
]
