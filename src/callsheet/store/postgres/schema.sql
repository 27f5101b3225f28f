-- The whole schema: the sum of migrations/*.sql, for reading. A test holds the two equal; change both.

-- The engine's tables. `seq` to `began_ms` are the store's own; the other columns of inbox_jobs are, in order,
-- the fields of kernel.job.Job, and later migrations append to both. Times are milliseconds since the epoch.
-- Keys are compared byte by byte (COLLATE "C"): the same order on every store, and cheaper.

-- One sequence numbers jobs as they come and places as they enter the line.
CREATE SEQUENCE inbox_jobs_line;

-- Rows over 2 KB are toasted down to 256 bytes, uncompressed: large payloads, results and errors leave the hot row,
-- and a move of the job copies pointers only. Vacuum comes early, because each job leaves two dead versions; the
-- primary key has room for them, because full pages were searched for what could go, and split: a tenth of a claim.
CREATE TABLE inbox_jobs (
    seq bigint NOT NULL,
    position bigint NOT NULL,
    has_dependents boolean NOT NULL DEFAULT false,
    began_ms bigint,
    job_id uuid PRIMARY KEY WITH (fillfactor = 50),
    requester_id text COLLATE "C" NOT NULL,
    contract text NOT NULL,
    kind text NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    status text NOT NULL DEFAULT 'queued',
    stage text NOT NULL DEFAULT '',
    held text CHECK (held IN ('delay', 'dependency', 'slot')),
    progress double precision NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
    run_at bigint NOT NULL,
    payload text NOT NULL,
    result text,
    error text,
    worker_id text,
    claim_version integer NOT NULL DEFAULT 0,
    lease_expires_at bigint,
    heartbeat_at bigint,
    attempt_count integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    lease_losses integer NOT NULL DEFAULT 0,
    refresh_count integer NOT NULL DEFAULT 0,
    retry text NOT NULL DEFAULT '',
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    started_at bigint,
    attempt_started_at bigint,
    ended_at bigint,
    cancel_requested_at bigint,
    cancel_reason text,
    unique_key text COLLATE "C",
    concurrency_key text COLLATE "C",
    blocked_by integer NOT NULL DEFAULT 0,
    broken_by uuid,
    on_dependency_failure text NOT NULL DEFAULT 'cancel',
    ttl_s bigint,
    correlation_id text NOT NULL DEFAULT '',
    event_seq integer NOT NULL DEFAULT 1,
    event_ms bigint NOT NULL,
    CHECK (started_at IS NULL OR started_at >= created_at),
    CHECK (CASE status -- one expression, because each costs on every write
        WHEN 'queued' THEN ended_at IS NULL AND lease_expires_at IS NULL
        WHEN 'running' THEN ended_at IS NULL AND lease_expires_at IS NOT NULL
        ELSE status IN ('succeeded', 'failed', 'dead_letter', 'canceled') AND lease_expires_at IS NULL
            AND ended_at IS NOT NULL AND ended_at >= coalesce(started_at, created_at)
    END)
) WITH (
    fillfactor = 70,
    toast_tuple_target = 256,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_threshold = 1000,
    autovacuum_vacuum_cost_limit = 2000
);
ALTER TABLE inbox_jobs ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE inbox_jobs ALTER COLUMN result SET STORAGE EXTERNAL;
ALTER TABLE inbox_jobs ALTER COLUMN error SET STORAGE EXTERNAL;

CREATE INDEX inbox_jobs_claimable ON inbox_jobs (queue, priority DESC, position)
    WHERE status = 'queued' AND held IS NULL;
CREATE INDEX inbox_jobs_delayed ON inbox_jobs (queue, run_at, seq)
    WHERE status = 'queued' AND held = 'delay';
CREATE INDEX inbox_jobs_waiting_for_slot ON inbox_jobs (concurrency_key, priority DESC, seq)
    WHERE status = 'queued' AND held = 'slot';
CREATE INDEX inbox_jobs_in_slot ON inbox_jobs (concurrency_key)
    WHERE concurrency_key IS NOT NULL AND (status = 'running' OR (status = 'queued' AND held IS NULL));
CREATE INDEX inbox_jobs_blocked ON inbox_jobs (queue)
    WHERE status = 'queued' AND held = 'dependency';
CREATE INDEX inbox_jobs_broken ON inbox_jobs (seq)
    WHERE status = 'queued' AND broken_by IS NOT NULL;
CREATE INDEX inbox_jobs_leased ON inbox_jobs (lease_expires_at, seq)
    WHERE status = 'running';
CREATE INDEX inbox_jobs_ended ON inbox_jobs (ended_at, seq)
    WHERE ended_at IS NOT NULL;
CREATE INDEX inbox_jobs_short_lived ON inbox_jobs ((ended_at + ttl_s * 1000))
    WHERE ended_at IS NOT NULL AND ttl_s IS NOT NULL;
CREATE UNIQUE INDEX inbox_jobs_active_unique_key ON inbox_jobs (unique_key)
    WHERE unique_key IS NOT NULL AND status IN ('queued', 'running');

-- The order in which jobs are listed, beside the hot table: written once with the job and never again. The same two
-- indexes on inbox_jobs would get a new entry on every move: 9 µs of 87 µs for a claim and its settlement.
CREATE TABLE job_register (
    seq bigint PRIMARY KEY,
    job_id uuid NOT NULL,
    requester_id text COLLATE "C" NOT NULL
);

CREATE INDEX job_register_of_requester ON job_register (requester_id, seq)
    WHERE requester_id <> '';

-- The events that a job's row does not tell by itself: see job_history. Writing those too was a quarter of all cost.
CREATE TABLE job_events (
    job_id uuid NOT NULL,
    seq integer NOT NULL,
    ms bigint NOT NULL,
    type text NOT NULL,
    step text NOT NULL,
    progress double precision NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (job_id, seq)
) WITH (autovacuum_vacuum_cost_limit = 2000);

-- All events. A row tells that it was queued; that its attempt began, by `began_ms`, if nothing was written since;
-- and that it is done, if no richer event says so.
CREATE VIEW job_history AS
SELECT job_id, seq, ms, type, step, progress, data FROM job_events
UNION ALL
SELECT job_id, 1, created_at, 'queued', 'gateway.enqueue', 0, '{}' FROM inbox_jobs
UNION ALL
SELECT job_id, event_seq - CASE status WHEN 'running' THEN 0 ELSE 1 END, began_ms, 'running', stage,
       CASE status WHEN 'running' THEN progress ELSE 0 END, '{}'
FROM inbox_jobs WHERE began_ms IS NOT NULL
UNION ALL
SELECT job_id, event_seq, event_ms, 'done', stage, progress, '{}' FROM inbox_jobs j
WHERE status = 'succeeded' AND NOT EXISTS (SELECT FROM job_events e WHERE e.job_id = j.job_id AND e.seq = j.event_seq);

-- All attempts that did not succeed. One that did is in its job's row already, which ends with it: writing it here too
-- was a fifth of the cost of an end.
CREATE TABLE job_attempts (
    job_id uuid NOT NULL,
    claim_version integer NOT NULL,
    attempt integer NOT NULL,
    worker_id text NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    outcome text NOT NULL,
    error text,
    PRIMARY KEY (job_id, claim_version)
) WITH (autovacuum_vacuum_cost_limit = 2000);

CREATE TABLE job_checkpoints (
    job_id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (job_id, name)
);

CREATE TABLE job_dependencies (
    depends_on uuid NOT NULL,
    job_id uuid NOT NULL,
    PRIMARY KEY (depends_on, job_id)
);

CREATE TABLE job_outbox_events (
    seq bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    event_id text NOT NULL UNIQUE,
    job_id uuid NOT NULL,
    requester_id text COLLATE "C" NOT NULL,
    endpoint text NOT NULL,
    body text NOT NULL,
    status text NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'delivering', 'delivered', 'dead_letter')),
    run_at bigint NOT NULL,
    attempt_count integer NOT NULL DEFAULT 0,
    worker_id text,
    claim_version integer NOT NULL DEFAULT 0,
    lease_expires_at bigint,
    heartbeat_at bigint,
    created_at bigint NOT NULL,
    ended_at bigint,
    error text,
    destination text COLLATE "C" NOT NULL DEFAULT ''
) WITH (
    fillfactor = 70,
    toast_tuple_target = 256,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_threshold = 1000,
    autovacuum_vacuum_cost_limit = 2000
);

CREATE INDEX job_outbox_events_due ON job_outbox_events (requester_id, destination, run_at, seq) WHERE status = 'pending';
CREATE INDEX job_outbox_events_of_requester ON job_outbox_events (requester_id, seq);
CREATE INDEX job_outbox_events_leased ON job_outbox_events (lease_expires_at, seq) WHERE status = 'delivering';
CREATE INDEX job_outbox_events_ended ON job_outbox_events (ended_at, seq) WHERE ended_at IS NOT NULL;
CREATE INDEX job_outbox_events_of_job ON job_outbox_events (job_id);

CREATE TABLE idempotency_keys (
    requester_id text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    request_hash text NOT NULL,
    job_id uuid NOT NULL,
    response text NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (requester_id, idempotency_key)
);

CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

CREATE TABLE concurrency_limits (
    concurrency_key text COLLATE "C" PRIMARY KEY,
    max_running integer NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE paused_queues (queue text COLLATE "C" PRIMARY KEY);

CREATE TABLE documents (
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    body text NOT NULL,
    version integer NOT NULL,
    PRIMARY KEY (kind, id)
);

-- The table names of the other contracts.
CREATE VIEW jobs AS
SELECT job_id AS id, status, kind AS job_type, payload, result, error, attempt_count AS attempts, max_attempts, progress,
       priority, to_timestamp(run_at / 1000.0) AS run_at, to_timestamp(created_at / 1000.0) AS created_at,
       to_timestamp(updated_at / 1000.0) AS updated_at, to_timestamp(started_at / 1000.0) AS started_at,
       to_timestamp(ended_at / 1000.0) AS ended_at
FROM inbox_jobs;

-- Jobs that ended badly, newest first: few among many. The predicate names what claims do not write. (Those that were
-- canceled after a failed attempt are among them.)
CREATE INDEX inbox_jobs_ended_badly ON inbox_jobs (seq)
    WHERE error IS NOT NULL AND ended_at IS NOT NULL;

-- Contract 003's lease and attempt, for people and reports. What follows a `~` in a worker's id is the hash of its lease
-- token, which is nobody's business. One attempt that succeeded or runs is told by its job's row alone.
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

-- Encrypted credentials of jobs, beside the hot table: claim and get never read them. The columns are the contract's.
-- A job that has some is marked `has_dependents`: something hangs on its end, so that `succeed` leaves it to `settle`.
CREATE TABLE job_credentials (
    job_id uuid PRIMARY KEY,
    requester_id text COLLATE "C" NOT NULL,
    credential_version integer NOT NULL,
    storage_creds_encrypted text NOT NULL,
    storage_creds_dek_wrapped text NOT NULL,
    storage_creds_kek_id text COLLATE "C" NOT NULL,
    storage_creds_encryption_version integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_limit = 2000);

CREATE INDEX job_credentials_under_kek ON job_credentials (storage_creds_kek_id, job_id);

-- Queued jobs of a requester, to be counted against its quota. Jobs without one are not in it, and pay nothing for it.
CREATE INDEX inbox_jobs_queued_of_requester ON inbox_jobs (requester_id)
    WHERE requester_id <> '' AND status = 'queued';

-- Security-relevant acts: written, read and one day pruned, never changed. `requester_id` is the tenant that may see it.
CREATE TABLE audit_log (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    requester_id text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    actor text COLLATE "C" NOT NULL,
    target text NOT NULL,
    outcome text NOT NULL,
    address text NOT NULL,
    request_id text NOT NULL,
    details text NOT NULL
);

CREATE INDEX audit_log_by_time ON audit_log (at, seq);
CREATE INDEX audit_log_of_requester ON audit_log (requester_id, at, seq);
CREATE RULE audit_log_is_append_only AS ON UPDATE TO audit_log DO INSTEAD NOTHING;

-- Contract 000's jobs in its own words and under its own names, for SQL of others; `inbox_jobs.status` has the kernel's.
-- Times are milliseconds, as in the tables. What follows a `~` in a worker's id is nobody's business.
CREATE VIEW euterpe_jobs AS
SELECT j.job_id, j.requester_id, j.kind, j.queue, j.priority,
       CASE WHEN j.status <> 'running' THEN j.status WHEN j.stage = '' THEN 'claimed' ELSE j.stage END AS status,
       j.progress, split_part(j.worker_id, '~', 1) AS worker_id, j.claim_version, j.lease_expires_at, j.heartbeat_at,
       j.attempt_count, j.max_attempts, j.refresh_count, j.run_at, j.payload, j.result, j.error, j.created_at, j.updated_at,
       j.started_at, j.ended_at, coalesce(c.credential_version, 0) AS credential_version, c.storage_creds_encrypted,
       c.storage_creds_dek_wrapped, c.storage_creds_kek_id, c.storage_creds_encryption_version
FROM inbox_jobs j LEFT JOIN job_credentials c ON c.job_id = j.job_id
WHERE j.contract = 'euterpe';
