"""The guards of the Redis store."""

from __future__ import annotations

from tests.mutations.guard import CLAIM, DEPENDENCIES, ENQUEUE, KEEPING, LEASE, OUTBOX, SETTLE, STALE, Guard


def redis(name: str, script: str, before: str, after: str, test: str, *, times: int = 1) -> Guard:
    return Guard("redis", name, f"store/redis/scripts/{script}.lua", before, after, test, times)


FENCE = "if not job.status or (job.claim_version or '0') ~= s.version or status_of(job) ~= s.from then return false end"

REDIS = [
    redis(
        "fence of settle: version",
        "move",
        FENCE,
        FENCE.replace("(job.claim_version or '0') ~= s.version or ", ""),
        STALE,
    ),
    redis(
        "fence of settle: status",
        "move",
        FENCE,
        FENCE.replace(" or status_of(job) ~= s.from", ""),
        f"{SETTLE}::test_a_write_after_the_end_is_stale",
    ),
    redis(
        "fence of the short way: version",
        "plain",
        " and v[2] == s.version",
        "",
        f"{SETTLE}::test_a_batch_of_ends_is_fenced_one_by_one",
    ),
    redis(
        "expired only",
        "move",
        "return not s.more.expired_only or",
        "return true or",
        f"{LEASE}::test_a_heartbeat_in_between_wins_over_the_reaper",
    ),
    redis(
        "fence of heartbeat: version",
        "heartbeat",
        "if job.status == 'running' and job.claim_version == version then",
        "if job.status == 'running' then",
        f"{LEASE}::test_a_stale_claim_cannot_heartbeat",
    ),
    redis("fence of outbox heartbeat", "outbox_heartbeat", " and event.claim_version == ARGV[i + 1]", "", OUTBOX),
    redis("fence of outbox settle", "outbox_settle", " or event.claim_version ~= version", "", OUTBOX),
    redis(
        "a message is the job's present one",
        "take",
        "if job.msg ~= msg and (job.seq or running) and not takes_place(id, job, stream, msg) then return nil end",
        "",
        "tests/contracts/redis_gateway/test_let_go.py::test_a_copy_of_a_job_that_a_foreign_worker_runs_does_not_run",
    ),
    redis(
        "an ended job is not claimed",
        "take",
        "if ENDED[job.status] or ",
        "if ",
        "tests/store_redis/test_foreign.py",
    ),
    redis(
        "a job is claimed once",
        "take",
        "or (running and job.worker_id) or",
        "or",
        "tests/contracts/redis_gateway/test_let_go.py::test_a_copy_of_a_job_that_our_worker_runs_does_not_run",
    ),
    redis("priority", "claim", "call('ZREVRANGE', priorities", "call('ZRANGE', priorities", CLAIM),
    redis("delay", "line", "delayed, '-inf', NOW, 'LIMIT'", "delayed, '-inf', '+inf', 'LIMIT'", CLAIM),
    redis(
        "pause",
        "claim",
        "if not paused[queue] and n_claimed",
        "if n_claimed",
        f"{CLAIM}::test_a_paused_queue_hands_out_nothing",
    ),
    redis(
        "progress never falls",
        "move",
        "if s.progress ~= '' and tonumber(s.progress) > tonumber(job.progress or 0) then",
        "if s.progress ~= '' then",
        f"{SETTLE}::test_progress_never_falls",
    ),
    redis(
        "times never fall",
        "lib",
        "if ms and (tonumber(ms) or 0) > now then return ms end",
        "",
        f"{SETTLE}::test_times_never_fall_when_the_clock_steps_back",
    ),
    redis("prune only the old", "prune", "'(' .. BEFORE, 'WITHSCORES'", "'+inf', 'WITHSCORES'", KEEPING),
    redis(
        "delete by claim",
        "delete",
        "and (job.claim_version or '0') == ARGV[i + 1] and",
        "and",
        f"{KEEPING}::test_delete_leaves_a_job_that_moved_since_it_was_read",
    ),
    redis(
        "delete only the ended",
        "delete",
        "  if at then\n",
        "  if job.seq and (job.claim_version or '0') == ARGV[i + 1] then\n    at = at or NOW\n",
        f"{KEEPING}::test_delete_leaves_a_job_that_moved_since_it_was_read",
    ),
    redis(
        "slots",
        "line",
        "if free <= 0 then return 0 end",
        "free = 99",
        f"{CLAIM}::test_a_concurrency_key_limits_running_jobs",
    ),
    redis("document version", "document", "if version ~= expected then return 0 end", "", KEEPING),
    redis(
        "idempotency expires",
        "create",
        "if not row.hash or (tonumber(row.expires_at) or 0) <= now then",
        "if not row.hash then",
        ENQUEUE,
    ),
    redis(
        "idempotency hash",
        "create",
        "if row.hash ~= new.idem_hash then",
        "if false then",
        f"{ENQUEUE}::test_the_same_key_with_another_request_is_a_conflict",
    ),
    redis(
        "unique key",
        "create",
        "local holder = new.unique_key and active(new.unique_key)",
        "local holder = false",
        ENQUEUE,
    ),
    redis(
        "a taken id", "create", "if planned.ids[new.id] or (taken and exists(new.id)) then", "if false then", ENQUEUE
    ),
    redis("dependency is known", "create", "if not exists(parent) then return", "if false then return", ENQUEUE),
    redis(
        "a failed dependency does not free",
        "line",
        "if status ~= 'succeeded' and job.on_dependency_failure ~= 'run' then",
        "if false then",
        DEPENDENCIES,
    ),
    redis(
        "a dependency counts once",
        "line",
        "        call('ZREM', dependents, child)\n",
        "",
        f"{DEPENDENCIES}::test_a_dependency_counts_once_however_often_it_ends",
    ),
    redis(
        "outcome is repeated only if it is the same",
        "settle",
        "return outcome == s.outcome and REPEATED or STALE",
        "return REPEATED",
        SETTLE,
    ),
    redis("all is checked before anything is written", "settle", "if ARGV[4] == '1' then", "if false then", SETTLE),
]
