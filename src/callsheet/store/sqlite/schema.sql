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
);

CREATE INDEX job_outbox_events_due ON job_outbox_events (run_at, seq) WHERE status = 'pending';
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
