-- The schema as all migrations leave it, to read in one place. A test holds it to their sum.
-- The engine's tables. `seq` and `position` (a place in line, above 0 while the job is in it) are the store's own; the other columns of inbox_jobs are, in order,
-- the fields of kernel.job.Job, and later migrations append to both.

CREATE TABLE inbox_jobs (
    seq INTEGER PRIMARY KEY,
    position INTEGER NOT NULL,
    job_id TEXT NOT NULL UNIQUE,
    requester_id TEXT NOT NULL,
    contract TEXT NOT NULL,
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'queued',
    stage TEXT NOT NULL DEFAULT '',
    held TEXT CHECK (held IN ('delay', 'dependency', 'slot')),
    progress REAL NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
    run_at INTEGER NOT NULL,
    payload TEXT NOT NULL,
    result TEXT,
    error TEXT,
    worker_id TEXT,
    claim_version INTEGER NOT NULL DEFAULT 0,
    lease_expires_at INTEGER,
    heartbeat_at INTEGER,
    attempt_count INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    lease_losses INTEGER NOT NULL DEFAULT 0,
    refresh_count INTEGER NOT NULL DEFAULT 0,
    retry TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    started_at INTEGER,
    attempt_started_at INTEGER,
    ended_at INTEGER,
    cancel_requested_at INTEGER,
    cancel_reason TEXT,
    unique_key TEXT,
    concurrency_key TEXT,
    blocked_by INTEGER NOT NULL DEFAULT 0,
    broken_by TEXT,
    on_dependency_failure TEXT NOT NULL DEFAULT 'cancel',
    ttl_s INTEGER,
    correlation_id TEXT NOT NULL DEFAULT '',
    event_seq INTEGER NOT NULL DEFAULT 1,
    event_ms INTEGER NOT NULL,
    CHECK (started_at IS NULL OR started_at >= created_at),
    CHECK (CASE status -- one expression, because each costs some microseconds a write
        WHEN 'queued' THEN ended_at IS NULL AND lease_expires_at IS NULL
        WHEN 'running' THEN ended_at IS NULL AND lease_expires_at IS NOT NULL
        ELSE (status = 'succeeded' OR status = 'failed' OR status = 'dead_letter' OR status = 'canceled')
            AND lease_expires_at IS NULL AND ended_at IS NOT NULL AND ended_at >= coalesce(started_at, created_at)
    END)
);

-- Predicates name no column that the end of a job writes where that can be helped: SQLite then leaves those indexes alone.
CREATE INDEX inbox_jobs_claimable ON inbox_jobs (queue, priority DESC, position)
    WHERE position > 0;
CREATE INDEX inbox_jobs_delayed ON inbox_jobs (queue, run_at, seq)
    WHERE held = 'delay';
CREATE INDEX inbox_jobs_waiting_for_slot ON inbox_jobs (concurrency_key, priority DESC, seq)
    WHERE held = 'slot';
CREATE INDEX inbox_jobs_in_slot ON inbox_jobs (concurrency_key)
    WHERE concurrency_key IS NOT NULL AND (status = 'running' OR (status = 'queued' AND held IS NULL));
CREATE INDEX inbox_jobs_blocked ON inbox_jobs (queue)
    WHERE held = 'dependency';
CREATE INDEX inbox_jobs_broken ON inbox_jobs (seq)
    WHERE held = 'dependency' AND broken_by IS NOT NULL;
CREATE INDEX inbox_jobs_leased ON inbox_jobs (lease_expires_at)
    WHERE lease_expires_at IS NOT NULL;
CREATE INDEX inbox_jobs_ended ON inbox_jobs (ended_at)
    WHERE ended_at IS NOT NULL;
CREATE INDEX inbox_jobs_short_lived ON inbox_jobs (ended_at + ttl_s * 1000)
    WHERE ended_at IS NOT NULL AND ttl_s IS NOT NULL;
CREATE UNIQUE INDEX inbox_jobs_active_unique_key ON inbox_jobs (unique_key)
    WHERE unique_key IS NOT NULL AND status IN ('queued', 'running');
CREATE INDEX inbox_jobs_of_requester ON inbox_jobs (requester_id, seq)
    WHERE requester_id <> '';

CREATE TABLE job_events (
    job_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    ms INTEGER NOT NULL,
    type TEXT NOT NULL,
    step TEXT NOT NULL,
    progress REAL NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (job_id, seq)
) WITHOUT ROWID;

CREATE TABLE job_attempts (
    job_id TEXT NOT NULL,
    claim_version INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    worker_id TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    error TEXT,
    PRIMARY KEY (job_id, claim_version)
) WITHOUT ROWID;

CREATE TABLE job_checkpoints (
    job_id TEXT NOT NULL,
    name TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (job_id, name)
) WITHOUT ROWID;

CREATE TABLE job_dependencies (
    depends_on TEXT NOT NULL,
    job_id TEXT NOT NULL,
    PRIMARY KEY (depends_on, job_id)
) WITHOUT ROWID;

CREATE TABLE job_outbox_events (
    seq INTEGER PRIMARY KEY,
    event_id TEXT NOT NULL UNIQUE,
    job_id TEXT NOT NULL,
    requester_id TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    body TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'delivering', 'delivered', 'dead_letter')),
    run_at INTEGER NOT NULL,
    attempt_count INTEGER NOT NULL DEFAULT 0,
    worker_id TEXT,
    claim_version INTEGER NOT NULL DEFAULT 0,
    lease_expires_at INTEGER,
    heartbeat_at INTEGER,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    error TEXT
    , destination TEXT NOT NULL DEFAULT '');

CREATE INDEX job_outbox_events_due ON job_outbox_events (requester_id, destination, run_at, seq) WHERE status = 'pending';
CREATE INDEX job_outbox_events_of_requester ON job_outbox_events (requester_id, seq);
CREATE INDEX job_outbox_events_leased ON job_outbox_events (lease_expires_at) WHERE status = 'delivering';
CREATE INDEX job_outbox_events_ended ON job_outbox_events (ended_at, seq) WHERE ended_at IS NOT NULL;
CREATE INDEX job_outbox_events_of_job ON job_outbox_events (job_id);

CREATE TABLE idempotency_keys (
    requester_id TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    job_id TEXT NOT NULL,
    response TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (requester_id, idempotency_key)
) WITHOUT ROWID;

CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

CREATE TABLE concurrency_limits (
    concurrency_key TEXT PRIMARY KEY,
    max_running INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE paused_queues (queue TEXT PRIMARY KEY) WITHOUT ROWID;

CREATE TABLE documents (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;

CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('position', 0);

-- Encrypted credentials of jobs, beside the hot table: claim and get never read them. The columns are the contract's.
CREATE TABLE job_credentials (
    job_id TEXT NOT NULL PRIMARY KEY,
    requester_id TEXT NOT NULL,
    credential_version INTEGER NOT NULL,
    storage_creds_encrypted TEXT NOT NULL,
    storage_creds_dek_wrapped TEXT NOT NULL,
    storage_creds_kek_id TEXT NOT NULL,
    storage_creds_encryption_version INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX job_credentials_under_kek ON job_credentials (storage_creds_kek_id, job_id);

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

-- Queued jobs of a requester, to be counted against its quota. Jobs without one are not in it, and pay nothing for it.
CREATE INDEX inbox_jobs_queued_of_requester ON inbox_jobs (requester_id)
    WHERE requester_id <> '' AND status = 'queued';

-- Security-relevant acts: written, read and one day pruned, never changed. `requester_id` is the tenant that may see it.
CREATE TABLE audit_log (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    requester_id TEXT NOT NULL,
    action TEXT NOT NULL,
    actor TEXT NOT NULL,
    target TEXT NOT NULL,
    outcome TEXT NOT NULL,
    address TEXT NOT NULL,
    request_id TEXT NOT NULL,
    details TEXT NOT NULL
);

CREATE INDEX audit_log_by_time ON audit_log (at, seq);
CREATE INDEX audit_log_of_requester ON audit_log (requester_id, at, seq);
CREATE TRIGGER audit_log_is_append_only BEFORE UPDATE ON audit_log BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

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
