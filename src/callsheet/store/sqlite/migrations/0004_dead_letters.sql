-- Jobs that ended badly, newest first: few among many. The predicate names what claims do not write. (Those that were
-- canceled after a failed attempt are among them.)
CREATE INDEX inbox_jobs_ended_badly ON inbox_jobs (seq)
    WHERE error IS NOT NULL AND ended_at IS NOT NULL;

-- The table names of the other contracts, and contract 003's lease and attempt, for people and reports. What follows a `~`
-- in a worker's id is the hash of its lease token, which is nobody's business. An attempt that runs is told by its job's row.
CREATE VIEW jobs AS
SELECT job_id AS id, status, kind AS job_type, payload, result, error, attempt_count AS attempts, max_attempts, progress,
       priority, strftime('%Y-%m-%dT%H:%M:%fZ', run_at / 1000.0, 'unixepoch') AS run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', updated_at / 1000.0, 'unixepoch') AS updated_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000.0, 'unixepoch') AS started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', ended_at / 1000.0, 'unixepoch') AS ended_at
FROM inbox_jobs;

CREATE VIEW job_leases AS
SELECT job_id, CAST(claim_version AS TEXT) AS attempt_id,
       substr(worker_id, 1, instr(worker_id || '~', '~') - 1) AS worker_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', lease_expires_at / 1000.0, 'unixepoch') AS lease_expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', heartbeat_at / 1000.0, 'unixepoch') AS heartbeat_at
FROM inbox_jobs WHERE lease_expires_at IS NOT NULL;

CREATE VIEW job_attempts_all AS
SELECT job_id, CAST(claim_version AS TEXT) AS attempt_id, attempt,
       substr(worker_id, 1, instr(worker_id || '~', '~') - 1) AS worker_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000.0, 'unixepoch') AS started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', ended_at / 1000.0, 'unixepoch') AS ended_at, outcome, error
FROM job_attempts
UNION ALL
SELECT job_id, CAST(claim_version AS TEXT), attempt_count, substr(worker_id, 1, instr(worker_id || '~', '~') - 1),
       strftime('%Y-%m-%dT%H:%M:%fZ', attempt_started_at / 1000.0, 'unixepoch'), NULL, NULL, NULL
FROM inbox_jobs WHERE lease_expires_at IS NOT NULL AND attempt_started_at IS NOT NULL;
