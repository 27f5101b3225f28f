-- Jobs that ended badly, newest first: few among many. The predicate names what claims do not write. (Those that were
-- canceled after a failed attempt are among them.)
CREATE INDEX inbox_jobs_ended_badly ON inbox_jobs (seq)
    WHERE error IS NOT NULL AND ended_at IS NOT NULL;

-- Contract 003's lease and attempt, for people and reports. What follows a `~` in a worker's id is the hash of its lease
-- token, which is nobody's business. One attempt that succeeded or runs is told by its job's row alone.
DROP VIEW job_leases;
CREATE VIEW job_leases AS
SELECT job_id, claim_version::text AS attempt_id, split_part(worker_id, '~', 1) AS worker_id,
       to_timestamp(lease_expires_at / 1000.0) AS lease_expires_at, to_timestamp(heartbeat_at / 1000.0) AS heartbeat_at
FROM inbox_jobs WHERE status = 'running';

CREATE VIEW job_attempts_all AS
SELECT job_id, claim_version::text AS attempt_id, attempt, split_part(worker_id, '~', 1) AS worker_id,
       to_timestamp(started_at / 1000.0) AS started_at, to_timestamp(ended_at / 1000.0) AS ended_at, outcome, error
FROM job_attempts
UNION ALL
SELECT j.job_id, j.claim_version::text, j.attempt_count, split_part(j.worker_id, '~', 1),
       to_timestamp(coalesce(j.began_ms, (SELECT max(e.ms) FROM job_events e WHERE e.job_id = j.job_id AND e.type = 'running'))
           / 1000.0),
       to_timestamp(j.ended_at / 1000.0), 'succeeded', NULL
FROM inbox_jobs j WHERE j.status = 'succeeded'
UNION ALL
SELECT job_id, claim_version::text, attempt_count, split_part(worker_id, '~', 1),
       to_timestamp(attempt_started_at / 1000.0), NULL, NULL, NULL
FROM inbox_jobs WHERE status = 'running' AND attempt_started_at IS NOT NULL;
