-- Statements of the SQLite store, one block a verb. Status literals stand in the SQL, not in parameters:
-- only then does SQLite see that a partial index fits.

-- name: next_positions
UPDATE counters SET value = value + ?1 WHERE name = 'position' RETURNING value;

-- name: enqueue
INSERT INTO inbox_jobs (
    seq, position, job_id, requester_id, contract, kind, queue, priority, held, run_at, payload, max_attempts, retry,
    created_at, updated_at, event_ms, unique_key, concurrency_key, on_dependency_failure, ttl_s, correlation_id
) VALUES (?1, CASE WHEN ?8 IS NULL THEN ?1 ELSE 0 END, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13, ?13, ?14, ?15, ?16, ?17, ?18);

-- name: event
INSERT INTO job_events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);

-- name: remember
INSERT INTO idempotency_keys VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (requester_id, idempotency_key) DO UPDATE SET
    request_hash = excluded.request_hash, job_id = excluded.job_id, response = excluded.response,
    expires_at = excluded.expires_at;

-- name: idempotency_record
SELECT request_hash, job_id, response, expires_at FROM idempotency_keys
WHERE requester_id = ?1 AND idempotency_key = ?2 AND expires_at > ?3;

-- name: depth
-- Queued jobs of a queue, counted no further than the limit in each of the ways to be held.
SELECT (SELECT count(*) FROM (SELECT 1 FROM inbox_jobs WHERE queue = ?1 AND status = 'queued' AND held IS NULL LIMIT ?2) a)
     + (SELECT count(*) FROM (SELECT 1 FROM inbox_jobs WHERE queue = ?1 AND status = 'queued' AND held = 'delay' LIMIT ?2) b)
     + (SELECT count(*) FROM (SELECT 1 FROM inbox_jobs WHERE queue = ?1 AND status = 'queued' AND held = 'dependency' LIMIT ?2) c)
     + (SELECT count(*) FROM (SELECT 1 FROM inbox_jobs WHERE queue = ?1 AND status = 'queued' AND held = 'slot' LIMIT ?2) d);

-- name: queued_of
SELECT count(*) FROM (SELECT 1 FROM inbox_jobs WHERE requester_id = ?1 AND requester_id <> '' AND status = 'queued' LIMIT ?2);

-- name: queued_of_nobody
-- Jobs without a requester are in no index of requesters, which would slow down each of them: this looks at all that wait.
SELECT count(*) FROM (
    SELECT 1 FROM inbox_jobs WHERE position > 0 AND requester_id = ?1
    UNION ALL SELECT 1 FROM inbox_jobs WHERE held = 'delay' AND requester_id = ?1
    UNION ALL SELECT 1 FROM inbox_jobs WHERE held = 'dependency' AND requester_id = ?1
    UNION ALL SELECT 1 FROM inbox_jobs WHERE held = 'slot' AND requester_id = ?1
    LIMIT ?2
);

-- name: active_unique
SELECT job_id FROM inbox_jobs WHERE unique_key = ?1 AND unique_key IS NOT NULL AND status IN ('queued', 'running');

-- name: limit_slots
INSERT INTO concurrency_limits VALUES (?1, ?2) ON CONFLICT (concurrency_key) DO UPDATE SET max_running = excluded.max_running;

-- name: status_of
SELECT status FROM inbox_jobs WHERE job_id = ?1;

-- name: depend
INSERT INTO job_dependencies (depends_on, job_id) VALUES (?1, ?2);

-- name: block
UPDATE inbox_jobs SET held = 'dependency', position = 0, blocked_by = ?2, broken_by = ?3 WHERE job_id = ?1;

-- name: claimable
-- What a claim cannot know by itself, in order; each column costs 0.1 µs a job. `RETURNING *` below took 8 µs where
-- the two statements take 5.
SELECT job_id, requester_id, contract, kind, priority, stage, progress, run_at, payload, error, claim_version,
    attempt_count, max_attempts, lease_losses, refresh_count, retry, created_at, started_at, cancel_requested_at,
    cancel_reason, unique_key, concurrency_key, on_dependency_failure, ttl_s, correlation_id, event_seq, event_ms
FROM inbox_jobs WHERE queue = ?1 AND position > 0 ORDER BY priority DESC, position LIMIT ?2;

-- name: note_running
INSERT INTO job_events
SELECT job_id, event_seq + 1, max(?3, event_ms), 'running', stage, progress, '{}'
FROM inbox_jobs WHERE queue = ?1 AND position > 0 ORDER BY priority DESC, position LIMIT ?2;

-- name: claim
UPDATE inbox_jobs SET
    status = 'running', position = -position, worker_id = ?1, claim_version = claim_version + 1, lease_expires_at = ?2,
    heartbeat_at = ?3, updated_at = max(?3, event_ms),
    attempt_count = attempt_count + ?4,
    attempt_started_at = CASE WHEN ?4 THEN max(?3, event_ms) END,
    started_at = CASE WHEN ?4 THEN coalesce(started_at, max(?3, event_ms)) ELSE started_at END,
    event_seq = event_seq + ?4,
    event_ms = CASE WHEN ?4 THEN max(?3, event_ms) ELSE event_ms END
WHERE seq IN (
    SELECT seq FROM inbox_jobs WHERE queue = ?5 AND position > 0
    ORDER BY priority DESC, position LIMIT ?6
);

-- name: claimable_of_tenants
-- The places of some tenants' jobs: a walk along the line, past those of others. The `+` keeps it on the line's own index.
SELECT seq FROM inbox_jobs WHERE position > 0 AND queue = ?1 AND +requester_id IN (SELECT value FROM json_each(?2))
ORDER BY priority DESC, position LIMIT ?3;

-- name: claimable_by_seq
SELECT job_id, requester_id, contract, kind, priority, stage, progress, run_at, payload, error, claim_version,
    attempt_count, max_attempts, lease_losses, refresh_count, retry, created_at, started_at, cancel_requested_at,
    cancel_reason, unique_key, concurrency_key, on_dependency_failure, ttl_s, correlation_id, event_seq, event_ms
FROM inbox_jobs WHERE seq IN (SELECT value FROM json_each(?1)) ORDER BY priority DESC, position;

-- name: note_running_by_seq
INSERT INTO job_events
SELECT job_id, event_seq + 1, max(?2, event_ms), 'running', stage, progress, '{}'
FROM inbox_jobs WHERE seq IN (SELECT value FROM json_each(?1));

-- name: claim_by_seq
UPDATE inbox_jobs SET
    status = 'running', position = -position, worker_id = ?1, claim_version = claim_version + 1, lease_expires_at = ?2,
    heartbeat_at = ?3, updated_at = max(?3, event_ms),
    attempt_count = attempt_count + ?4,
    attempt_started_at = CASE WHEN ?4 THEN max(?3, event_ms) END,
    started_at = CASE WHEN ?4 THEN coalesce(started_at, max(?3, event_ms)) ELSE started_at END,
    event_seq = event_seq + ?4,
    event_ms = CASE WHEN ?4 THEN max(?3, event_ms) ELSE event_ms END
WHERE seq IN (SELECT value FROM json_each(?5));

-- name: ready_jobs
-- What is left of the priority, of the queue, and of the others: three ranges of the index, each read to the limit.
SELECT job_id, queue, claim_version, priority, position FROM (
    SELECT * FROM (
        SELECT job_id, queue, claim_version, priority, position FROM inbox_jobs
        WHERE queue = ?1 AND priority = ?2 AND position > max(0, ?3) AND position > 0 ORDER BY position LIMIT ?4
    )
    UNION ALL
    SELECT * FROM (
        SELECT job_id, queue, claim_version, priority, position FROM inbox_jobs
        WHERE queue = ?1 AND priority < ?2 AND position > 0 ORDER BY priority DESC, position LIMIT ?4
    )
    UNION ALL
    SELECT * FROM (
        SELECT job_id, queue, claim_version, priority, position FROM inbox_jobs
        WHERE queue > ?1 AND position > 0 ORDER BY queue, priority DESC, position LIMIT ?4
    )
) ORDER BY queue, priority DESC, position LIMIT ?4;

-- name: due
SELECT seq, concurrency_key FROM inbox_jobs
WHERE queue = ?1 AND held = 'delay' AND run_at <= ?2 ORDER BY run_at, seq LIMIT ?3;

-- name: delayed_queues
SELECT DISTINCT queue FROM inbox_jobs WHERE held = 'delay';

-- name: line_up
UPDATE inbox_jobs SET held = NULL, position = ?2 WHERE seq = ?1;

-- name: wait_for_slot
UPDATE inbox_jobs SET held = 'slot' WHERE seq = ?1;

-- name: free_slots
SELECT max_running - (
    SELECT count(*) FROM inbox_jobs WHERE concurrency_key = ?1 AND concurrency_key IS NOT NULL
    AND (status = 'running' OR (status = 'queued' AND held IS NULL))
) FROM concurrency_limits WHERE concurrency_key = ?1;

-- name: next_for_slot
SELECT seq FROM inbox_jobs WHERE concurrency_key = ?1 AND held = 'slot'
ORDER BY priority DESC, seq LIMIT ?2;

-- name: keys_waiting
SELECT DISTINCT concurrency_key FROM inbox_jobs WHERE held = 'slot';

-- name: heartbeat
UPDATE inbox_jobs SET lease_expires_at = CASE WHEN cancel_requested_at IS NULL THEN ?3 ELSE ?5 END, heartbeat_at = ?4
WHERE job_id = ?1 AND claim_version = ?2 AND status = 'running'
RETURNING cancel_requested_at IS NOT NULL;

-- name: end_attempt
INSERT INTO job_attempts
SELECT job_id, claim_version, attempt_count + (?4 AND attempt_started_at IS NULL), worker_id,
       coalesce(attempt_started_at, max(?5, event_ms)), max(?5, event_ms), ?6, ?7
FROM inbox_jobs
WHERE job_id = ?1 AND claim_version = ?2 AND status = ?3 AND (?8 = 0 OR lease_expires_at < ?5);

-- name: settle
UPDATE inbox_jobs SET
    status = ?4,
    updated_at = max(?5, event_ms),
    stage = coalesce(?6, stage),
    progress = max(progress, ?7),
    attempt_count = attempt_count + (?8 AND attempt_started_at IS NULL) - ?9,
    started_at = CASE WHEN ?8 THEN coalesce(started_at, max(?5, event_ms)) ELSE started_at END,
    attempt_started_at = CASE WHEN ?4 <> 'running' THEN NULL WHEN ?8 THEN coalesce(attempt_started_at, max(?5, event_ms))
        ELSE attempt_started_at END,
    lease_losses = CASE WHEN ended_at IS NOT NULL THEN 0 ELSE lease_losses + ?10 END,
    refresh_count = refresh_count + ?11,
    result = coalesce(?12, result),
    error = CASE WHEN ?4 = 'succeeded' THEN NULL ELSE coalesce(?13, error) END,
    max_attempts = CASE WHEN ?14 THEN attempt_count + ?14 ELSE max_attempts END,
    cancel_requested_at = CASE WHEN ended_at IS NOT NULL THEN NULL
        WHEN ?15 IS NOT NULL THEN coalesce(cancel_requested_at, max(?5, event_ms)) ELSE cancel_requested_at END,
    cancel_reason = CASE WHEN ended_at IS NOT NULL THEN NULL ELSE coalesce(?15, cancel_reason) END,
    blocked_by = CASE WHEN ended_at IS NOT NULL THEN 0 ELSE blocked_by END,
    broken_by = CASE WHEN ended_at IS NOT NULL THEN NULL ELSE broken_by END,
    lease_expires_at = CASE WHEN ?4 = 'running' THEN min(lease_expires_at, coalesce(heartbeat_at + ?20, lease_expires_at)) END,
    heartbeat_at = CASE WHEN ?4 = 'running' THEN heartbeat_at END,
    ended_at = CASE WHEN ?4 IN ('queued', 'running') THEN NULL ELSE max(?5, event_ms) END,
    worker_id = CASE WHEN ?4 = 'queued' THEN NULL ELSE worker_id END,
    run_at = CASE WHEN ?4 = 'queued' THEN ?5 + ?16 ELSE run_at END,
    position = CASE WHEN ?4 = 'running' THEN position WHEN ?4 = 'queued' AND ?16 = 0 AND concurrency_key IS NULL THEN ?17
        ELSE 0 END,
    held = CASE WHEN ?4 <> 'queued' THEN NULL WHEN ?16 > 0 THEN 'delay'
        WHEN concurrency_key IS NOT NULL THEN 'slot' END,
    event_seq = event_seq + ?18,
    event_ms = CASE WHEN ?18 THEN max(?5, event_ms) ELSE event_ms END
WHERE job_id = ?1 AND claim_version = ?2 AND status = ?3 AND (?19 = 0 OR lease_expires_at < ?5)
RETURNING event_seq, event_ms, progress, concurrency_key, requester_id;

-- name: end_attempts
-- The ends of many attempts that differ in nothing but their job and result: ?1 is JSON, [[job_id, version, result], …].
-- Jobs with a concurrency key are left out: who comes next depends on the order in which they end.
INSERT INTO job_attempts
SELECT j.job_id, j.claim_version, j.attempt_count, j.worker_id, j.attempt_started_at, max(?2, j.event_ms), ?3, ?4
FROM json_each(?1) AS asked CROSS JOIN inbox_jobs j
WHERE j.job_id = json_extract(asked.value, '$[0]') AND j.claim_version = json_extract(asked.value, '$[1]')
  AND j.status = 'running' AND j.concurrency_key IS NULL;

-- name: note_ends
INSERT INTO job_events
SELECT j.job_id, j.event_seq + 1, max(?2, j.event_ms), ?3, ?4, max(j.progress, ?6), ?5
FROM json_each(?1) AS asked CROSS JOIN inbox_jobs j WHERE j.job_id = json_extract(asked.value, '$[0]');

-- name: end
UPDATE inbox_jobs SET
    status = ?3, updated_at = max(?2, event_ms), ended_at = max(?2, event_ms), event_ms = max(?2, event_ms),
    event_seq = event_seq + 1, progress = max(progress, ?4), result = coalesce(json_extract(asked.value, '$[2]'), result),
    error = ?5, lease_expires_at = NULL, heartbeat_at = NULL, attempt_started_at = NULL
FROM json_each(?1) AS asked
WHERE inbox_jobs.job_id = json_extract(asked.value, '$[0]');

-- name: waited_for
SELECT 1 FROM json_each(?1) AS asked JOIN job_dependencies d ON d.depends_on = json_extract(asked.value, '$[0]') LIMIT 1;

-- name: changes
SELECT changes();

-- name: repeated
SELECT outcome FROM job_attempts WHERE job_id = ?1 AND claim_version = ?2;

-- name: keep_checkpoint
INSERT INTO job_checkpoints VALUES (?1, ?2, ?3) ON CONFLICT (job_id, name) DO UPDATE SET data = excluded.data;

-- name: outbox_known
SELECT o.event_id FROM json_each(?2) a JOIN job_outbox_events o ON o.event_id = a.value WHERE o.job_id = ?1;

-- name: holds
SELECT 1 FROM inbox_jobs WHERE job_id = ?1 AND claim_version = ?2 AND status = ?3;

-- name: add_outbox
INSERT INTO job_outbox_events (event_id, job_id, requester_id, endpoint, body, run_at, created_at, destination)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7);

-- name: dependents
SELECT j.seq, j.job_id, j.blocked_by, j.run_at, j.concurrency_key, j.on_dependency_failure
FROM job_dependencies d JOIN inbox_jobs j ON j.job_id = d.job_id
WHERE d.depends_on = ?1 AND j.status = 'queued' AND j.held = 'dependency' ORDER BY j.seq;

-- name: undepend
DELETE FROM job_dependencies WHERE depends_on = ?1 AND job_id = ?2;

-- name: unblock
UPDATE inbox_jobs SET blocked_by = blocked_by - 1, held = CASE WHEN blocked_by > 1 THEN 'dependency' ELSE ?2 END,
    position = CASE WHEN blocked_by > 1 OR ?2 IS NOT NULL THEN 0 ELSE ?3 END
WHERE seq = ?1;

-- name: break_dependent
UPDATE inbox_jobs SET broken_by = coalesce(broken_by, ?2) WHERE seq = ?1;

-- name: with_expired_lease
SELECT * FROM inbox_jobs WHERE lease_expires_at IS NOT NULL AND lease_expires_at < ?1 ORDER BY lease_expires_at LIMIT ?2;

-- name: running_of
SELECT * FROM inbox_jobs WHERE lease_expires_at IS NOT NULL AND worker_id = ?1 ORDER BY seq LIMIT ?2;

-- name: with_failed_dependency
SELECT * FROM inbox_jobs WHERE held = 'dependency' AND broken_by IS NOT NULL ORDER BY seq LIMIT ?1;

-- name: prunable
SELECT job_id FROM (
    SELECT * FROM (
        SELECT job_id, ended_at, seq FROM inbox_jobs WHERE ended_at IS NOT NULL AND ended_at < ?1
        ORDER BY ended_at, seq LIMIT ?3
    )
    UNION
    SELECT job_id, ended_at, seq FROM inbox_jobs
    WHERE ended_at IS NOT NULL AND ttl_s IS NOT NULL AND ended_at + ttl_s * 1000 < ?2
)
ORDER BY ended_at, seq LIMIT ?3;

-- name: deletable
SELECT 1 FROM inbox_jobs WHERE job_id = ?1 AND claim_version = ?2 AND ended_at IS NOT NULL;

-- name: prune_job
DELETE FROM inbox_jobs WHERE job_id = ?1;

-- name: prune_events
DELETE FROM job_events WHERE job_id = ?1;

-- name: prune_attempts
DELETE FROM job_attempts WHERE job_id = ?1;

-- name: prune_checkpoints
DELETE FROM job_checkpoints WHERE job_id = ?1;

-- name: prune_dependencies
DELETE FROM job_dependencies WHERE depends_on = ?1;

-- name: prune_outbox
DELETE FROM job_outbox_events WHERE job_id = ?1 AND status IN ('delivered', 'dead_letter');

-- name: prune_orphans
-- Callbacks that outlived their job and have ended since.
DELETE FROM job_outbox_events WHERE seq IN (
    SELECT seq FROM job_outbox_events o WHERE o.ended_at IS NOT NULL AND o.ended_at < ?1
    AND NOT EXISTS (SELECT 1 FROM inbox_jobs j WHERE j.job_id = o.job_id) ORDER BY o.ended_at, o.seq LIMIT ?2
);

-- name: prune_keys
DELETE FROM idempotency_keys WHERE expires_at <= ?1;

-- name: get
SELECT * FROM inbox_jobs WHERE job_id = ?1;

-- name: find
SELECT * FROM inbox_jobs
WHERE seq < coalesce(?1, 9223372036854775807) AND seq >= coalesce(?11, 0)
  AND (?2 IS NULL OR requester_id = ?2) AND (?3 IS NULL OR kind = ?3)
  AND (?4 IS NULL OR queue = ?4) AND (?5 IS NULL OR contract = ?5)
  AND (?6 IS NULL OR created_at >= ?6) AND (?7 IS NULL OR created_at < ?7)
  AND (?8 = '' OR instr(?8, ' ' || status || ' ') > 0)
  AND (?10 IS NULL OR instr(job_id, ?10) > 0 OR instr(lower(kind), ?10) > 0 OR instr(lower(correlation_id), ?10) > 0
       OR instr(lower(error), ?10) > 0 OR instr(lower(payload), ?10) > 0)
  AND (?12 IS NULL OR ended_at IS NOT NULL OR (started_at IS NOT NULL) = ?12)
ORDER BY seq DESC LIMIT ?9;

-- name: find_of_requester
SELECT * FROM inbox_jobs
WHERE requester_id = ?2 AND requester_id <> '' AND seq < coalesce(?1, 9223372036854775807)
  AND seq >= coalesce(?11, 0) AND (?3 IS NULL OR kind = ?3)
  AND (?4 IS NULL OR queue = ?4) AND (?5 IS NULL OR contract = ?5)
  AND (?6 IS NULL OR created_at >= ?6) AND (?7 IS NULL OR created_at < ?7)
  AND (?8 = '' OR instr(?8, ' ' || status || ' ') > 0)
  AND (?10 IS NULL OR instr(job_id, ?10) > 0 OR instr(lower(kind), ?10) > 0 OR instr(lower(correlation_id), ?10) > 0
       OR instr(lower(error), ?10) > 0 OR instr(lower(payload), ?10) > 0)
  AND (?12 IS NULL OR ended_at IS NOT NULL OR (started_at IS NOT NULL) = ?12)
ORDER BY seq DESC LIMIT ?9;

-- name: find_ended_badly
SELECT * FROM inbox_jobs INDEXED BY inbox_jobs_ended_badly
WHERE error IS NOT NULL AND ended_at IS NOT NULL
  AND seq < coalesce(?1, 9223372036854775807) AND seq >= coalesce(?11, 0)
  AND (?2 IS NULL OR requester_id = ?2) AND (?3 IS NULL OR kind = ?3)
  AND (?4 IS NULL OR queue = ?4) AND (?5 IS NULL OR contract = ?5)
  AND (?6 IS NULL OR created_at >= ?6) AND (?7 IS NULL OR created_at < ?7)
  AND (?8 = '' OR instr(?8, ' ' || status || ' ') > 0)
  AND (?10 IS NULL OR instr(job_id, ?10) > 0 OR instr(lower(kind), ?10) > 0 OR instr(lower(correlation_id), ?10) > 0
       OR instr(lower(error), ?10) > 0 OR instr(lower(payload), ?10) > 0)
  AND (?12 IS NULL OR ended_at IS NOT NULL OR (started_at IS NOT NULL) = ?12)
ORDER BY seq DESC LIMIT ?9;

-- name: find_floor
-- The last of so many jobs before one; none when there are fewer, wherever pruning has left holes.
SELECT seq FROM inbox_jobs WHERE seq < coalesce(?1, 9223372036854775807) ORDER BY seq DESC LIMIT 1 OFFSET ?2 - 1;

-- name: ended_counts
SELECT ended_at - ended_at % ?2, kind, status, count(*) FROM inbox_jobs
WHERE ended_at >= ?1 AND (?3 IS NULL OR requester_id = ?3) GROUP BY 1, 2, 3;

-- name: dead_letters
SELECT kind, count(*) FROM inbox_jobs INDEXED BY inbox_jobs_ended_badly
WHERE error IS NOT NULL AND ended_at IS NOT NULL AND status = 'dead_letter' AND (?1 IS NULL OR requester_id = ?1)
GROUP BY kind;

-- name: worker_loads
SELECT worker_id, count(*), max(heartbeat_at) FROM inbox_jobs INDEXED BY inbox_jobs_leased
WHERE lease_expires_at IS NOT NULL AND worker_id IS NOT NULL AND (?1 IS NULL OR requester_id = ?1)
GROUP BY worker_id ORDER BY worker_id;

-- name: counts
SELECT queue, status, count(*) FROM inbox_jobs GROUP BY queue, status;

-- name: backlog
-- Each branch reads one partial index over jobs that have not ended; of the line, only the first of each priority is
-- looked up in the table.
SELECT queue, sum(ready), sum(held), sum(running), max(0, ?1 - min(since)) FROM (
    SELECT queue, n AS ready, 0 AS held, 0 AS running, (
        SELECT max(j.created_at, j.run_at) FROM inbox_jobs j
        WHERE j.queue = line.queue AND j.priority = line.priority AND j.position > 0 ORDER BY j.position LIMIT 1
    ) AS since
    FROM (
        SELECT queue, priority, count(*) AS n FROM inbox_jobs WHERE position > 0 GROUP BY queue, priority
    ) AS line
    UNION ALL
    SELECT queue, sum(run_at <= ?1), sum(run_at > ?1), 0, min(CASE WHEN run_at <= ?1 THEN run_at END)
    FROM inbox_jobs WHERE held = 'delay' GROUP BY queue
    UNION ALL
    SELECT queue, 0, count(*), 0, NULL FROM inbox_jobs WHERE held = 'slot' GROUP BY queue
    UNION ALL
    SELECT queue, 0, count(*), 0, NULL FROM inbox_jobs WHERE held = 'dependency' GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, count(*), NULL FROM inbox_jobs WHERE lease_expires_at IS NOT NULL GROUP BY queue
) GROUP BY queue;

-- name: attempts
SELECT * FROM job_attempts WHERE job_id = ?1 ORDER BY claim_version;

-- name: checkpoints
SELECT name, data FROM job_checkpoints WHERE job_id = ?1 ORDER BY name;

-- name: events
SELECT * FROM job_events WHERE job_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3;

-- name: outbox_destinations
-- By jumps through the index: a destination with 100,000 pending events costs as much as one with a single one. Two
-- jumps, for SQLite uses the index only for the first column of `(a, b) > (x, y)`: 10,000 events cost 1.9 ms instead of 0.1.
WITH RECURSIVE found (requester_id, destination) AS (
    SELECT * FROM (
        SELECT requester_id, destination FROM job_outbox_events WHERE status = 'pending'
        ORDER BY requester_id, destination LIMIT 1
    )
    UNION ALL
    SELECT o.requester_id, o.destination FROM found f JOIN job_outbox_events o ON o.seq = coalesce(
        (
            SELECT seq FROM job_outbox_events WHERE status = 'pending' AND requester_id = f.requester_id
            AND destination > f.destination ORDER BY destination LIMIT 1
        ),
        (
            SELECT seq FROM job_outbox_events WHERE status = 'pending' AND requester_id > f.requester_id
            ORDER BY requester_id, destination LIMIT 1
        )
    )
)
SELECT requester_id, destination FROM found;

-- name: outbox_due
SELECT run_at, seq FROM job_outbox_events
WHERE status = 'pending' AND requester_id = ?1 AND destination = ?2 AND run_at <= ?3 ORDER BY run_at, seq LIMIT ?4;

-- name: outbox_lost
SELECT requester_id, destination, seq FROM job_outbox_events WHERE status = 'delivering' AND lease_expires_at < ?1
ORDER BY lease_expires_at, seq;

-- name: outbox_claim
UPDATE job_outbox_events SET
    status = 'delivering', worker_id = ?1, claim_version = claim_version + 1, lease_expires_at = ?2, heartbeat_at = ?3,
    attempt_count = attempt_count + (status = 'delivering')
WHERE seq = ?4
RETURNING *;

-- name: outbox_heartbeat
UPDATE job_outbox_events SET lease_expires_at = ?3, heartbeat_at = ?4
WHERE event_id = ?1 AND claim_version = ?2 AND status = 'delivering'
RETURNING 1;

-- name: outbox_settle
UPDATE job_outbox_events SET
    status = ?3, attempt_count = attempt_count + ?4, error = coalesce(?5, error), lease_expires_at = NULL,
    heartbeat_at = NULL, run_at = CASE WHEN ?3 = 'pending' THEN ?6 + ?7 ELSE run_at END,
    worker_id = CASE WHEN ?3 = 'pending' THEN NULL ELSE worker_id END,
    ended_at = CASE WHEN ?3 = 'pending' THEN NULL ELSE ?6 END
WHERE event_id = ?1 AND claim_version = ?2 AND status = 'delivering'
RETURNING 1;

-- name: outbox_find
SELECT * FROM job_outbox_events
WHERE (?1 IS NULL OR job_id = ?1) AND (?2 IS NULL OR status = ?2) AND (?4 IS NULL OR requester_id = ?4)
  AND (?5 IS NULL OR endpoint = ?5) AND (?6 IS NULL OR event_id = ?6)
  AND (?7 IS NULL OR created_at >= ?7) AND (?8 IS NULL OR created_at < ?8)
  AND (?9 IS NULL OR seq > (SELECT seq FROM job_outbox_events WHERE event_id = ?9))
ORDER BY seq LIMIT ?3;

-- name: outbox_find_newest
SELECT * FROM job_outbox_events
WHERE (?1 IS NULL OR job_id = ?1) AND (?2 IS NULL OR status = ?2) AND (?4 IS NULL OR requester_id = ?4)
  AND (?5 IS NULL OR endpoint = ?5) AND (?6 IS NULL OR event_id = ?6)
  AND (?7 IS NULL OR created_at >= ?7) AND (?8 IS NULL OR created_at < ?8)
  AND (?9 IS NULL OR seq < (SELECT seq FROM job_outbox_events WHERE event_id = ?9))
ORDER BY seq DESC LIMIT ?3;

-- name: outbox_find_of_requester
SELECT * FROM job_outbox_events INDEXED BY job_outbox_events_of_requester
WHERE requester_id = ?4 AND (?1 IS NULL OR job_id = ?1) AND (?2 IS NULL OR status = ?2)
  AND (?5 IS NULL OR endpoint = ?5) AND (?6 IS NULL OR event_id = ?6)
  AND (?7 IS NULL OR created_at >= ?7) AND (?8 IS NULL OR created_at < ?8)
  AND (?9 IS NULL OR seq < (SELECT seq FROM job_outbox_events WHERE event_id = ?9))
ORDER BY seq DESC LIMIT ?3;

-- name: outbox_replay
UPDATE job_outbox_events SET
    status = 'pending', run_at = ?2 + ?3, attempt_count = 0, worker_id = NULL, ended_at = NULL
WHERE event_id = ?1 AND status IN ('delivered', 'dead_letter')
RETURNING 1;

-- name: pause
INSERT INTO paused_queues VALUES (?1) ON CONFLICT DO NOTHING;

-- name: resume
DELETE FROM paused_queues WHERE queue = ?1;

-- name: paused_queues
SELECT queue FROM paused_queues;

-- name: create_document
INSERT INTO documents VALUES (?1, ?2, ?3, 1) ON CONFLICT DO NOTHING RETURNING version;

-- name: change_document
UPDATE documents SET body = ?3, version = version + 1 WHERE kind = ?1 AND id = ?2 AND version = ?4 RETURNING version;

-- name: documents
SELECT kind, id, body, version FROM documents WHERE kind = ?1 AND (?2 IS NULL OR id = ?2) ORDER BY id;

-- name: delete_document
DELETE FROM documents WHERE kind = ?1 AND id = ?2 RETURNING 1;

-- name: rebase_leases
-- ?1 before, ?2 after, ?3 the tolerance. Forward: those alive before the step that have not beaten since it. Back: those
-- whose last beat has yet to come. The beat moves with the lease, so that the next step knows it, too.
UPDATE inbox_jobs SET lease_expires_at = lease_expires_at + ?2 - ?1, heartbeat_at = heartbeat_at + ?2 - ?1
WHERE lease_expires_at IS NOT NULL AND CASE WHEN ?2 > ?1 THEN lease_expires_at >= ?1 AND coalesce(heartbeat_at, 0) <= ?1
    ELSE coalesce(heartbeat_at, lease_expires_at) > ?2 + ?3 END;

-- name: rebase_delayed
-- ?3 since. The same for `dependency`: see clock.py.
UPDATE inbox_jobs SET run_at = run_at + ?2 - ?1
WHERE held = 'delay' AND run_at > ?2 AND updated_at >= ?3 AND NOT EXISTS (
    SELECT 1 FROM job_checkpoints c WHERE c.job_id = inbox_jobs.job_id AND c.name = '~run_at' AND c.data = CAST(run_at AS TEXT)
);

-- name: rebase_callbacks
UPDATE job_outbox_events SET run_at = run_at + ?2 - ?1 WHERE status = 'pending' AND run_at > ?2;

-- name: rebase_deliveries
UPDATE job_outbox_events SET lease_expires_at = lease_expires_at + ?2 - ?1, heartbeat_at = heartbeat_at + ?2 - ?1
WHERE status = 'delivering' AND CASE WHEN ?2 > ?1 THEN lease_expires_at >= ?1 AND coalesce(heartbeat_at, 0) <= ?1
    ELSE coalesce(heartbeat_at, lease_expires_at) > ?2 + ?3 END;

-- name: keep_credentials
INSERT INTO job_credentials VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);

-- name: credentials
SELECT * FROM job_credentials WHERE job_id = ?1;

-- name: replace_credentials
UPDATE job_credentials SET
    credential_version = ?4, storage_creds_encrypted = ?5, storage_creds_dek_wrapped = ?6, storage_creds_kek_id = ?7,
    storage_creds_encryption_version = ?8
WHERE job_id = ?1 AND credential_version = ?2 AND storage_creds_dek_wrapped = ?3
RETURNING 1;

-- name: credentials_under
SELECT * FROM job_credentials WHERE storage_creds_kek_id = ?1 AND job_id > ?2 ORDER BY job_id LIMIT ?3;

-- name: credential_keks
SELECT storage_creds_kek_id, count(*) FROM job_credentials GROUP BY storage_creds_kek_id;

-- name: any_credentials
SELECT 1 FROM job_credentials LIMIT 1;

-- name: forget_credentials
DELETE FROM job_credentials WHERE job_id = ?1;

-- name: audit_append
INSERT INTO audit_log (at, requester_id, action, actor, target, outcome, address, request_id, details)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) RETURNING seq;

-- name: audit_find
SELECT seq, at, action, requester_id, actor, target, outcome, address, request_id, details FROM audit_log
WHERE at >= coalesce(?5, 0) AND at < coalesce(?6, 9223372036854775807)
    AND (?7 IS NULL OR (at, seq) < (?7, ?8)) AND at <= coalesce(?7, 9223372036854775807)
    AND (?1 IS NULL OR requester_id = ?1) AND (?2 IS NULL OR action = ?2)
    AND (?3 IS NULL OR substr(action, 1, length(?3)) = ?3) AND (?4 IS NULL OR actor = ?4)
ORDER BY at DESC, seq DESC LIMIT ?9;

-- name: audit_find_of_requester
SELECT seq, at, action, requester_id, actor, target, outcome, address, request_id, details FROM audit_log
WHERE requester_id = ?1 AND at >= coalesce(?5, 0) AND at < coalesce(?6, 9223372036854775807)
    AND (?7 IS NULL OR (at, seq) < (?7, ?8)) AND at <= coalesce(?7, 9223372036854775807)
    AND (?2 IS NULL OR action = ?2)
    AND (?3 IS NULL OR substr(action, 1, length(?3)) = ?3) AND (?4 IS NULL OR actor = ?4)
ORDER BY at DESC, seq DESC LIMIT ?9;

-- name: audit_prune
DELETE FROM audit_log WHERE seq IN (SELECT seq FROM audit_log WHERE at < ?1 ORDER BY at, seq LIMIT ?2) RETURNING 1;
