-- Contract 000's jobs in its own words and under its own names, for SQL of others; `inbox_jobs.status` has the kernel's.
-- Times are milliseconds, as in the tables. What follows a `~` in a worker's id is nobody's business.
CREATE VIEW euterpe_jobs AS
SELECT j.job_id, j.requester_id, j.kind, j.queue, j.priority,
       CASE WHEN j.status <> 'running' THEN j.status WHEN j.stage = '' THEN 'claimed' ELSE j.stage END AS status,
       j.progress, substr(j.worker_id, 1, instr(j.worker_id || '~', '~') - 1) AS worker_id, j.claim_version, j.lease_expires_at, j.heartbeat_at,
       j.attempt_count, j.max_attempts, j.refresh_count, j.run_at, j.payload, j.result, j.error, j.created_at, j.updated_at,
       j.started_at, j.ended_at, coalesce(c.credential_version, 0) AS credential_version, c.storage_creds_encrypted,
       c.storage_creds_dek_wrapped, c.storage_creds_kek_id, c.storage_creds_encryption_version
FROM inbox_jobs j LEFT JOIN job_credentials c ON c.job_id = j.job_id
WHERE j.contract = 'euterpe';
