-- Statements of the PostgreSQL store, one block a verb. Status literals stand in the SQL so that the partial indexes
-- fit. Where `$1::bigint` is the time, NULL means the server's clock, read once a statement.
-- In enqueue and settle a column that has the same value in every row comes as an array of one element (or none, for
-- NULL), which CASE spreads over all rows: encoding full arrays was a third of the client's work.

-- name: now
SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);

-- name: durability
SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('server_version');

-- name: schema_lock
SELECT pg_advisory_xact_lock(4983204716);

-- name: schema_exists
SELECT to_regclass('callsheet_schema') IS NOT NULL;

-- name: schema_create
CREATE TABLE IF NOT EXISTS callsheet_schema (version int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL);

-- name: schema_version
SELECT coalesce(max(version), 0) FROM callsheet_schema;

-- name: schema_note
INSERT INTO callsheet_schema (version, name, applied_at) VALUES ($1, $2, clock_timestamp());

-- name: plan_by_index
-- For transactions behind a pooler, where no session settings last: the same as those of a direct connection.
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off; SET LOCAL jit = off;

-- name: keepalive
SELECT 1;

-- name: notify
-- A wake-up need not survive a crash, and must not make the disk sync a hundred times a second.
SELECT set_config('synchronous_commit', 'off', true), pg_notify('callsheet', $1);

-- name: notify_on_commit
SELECT pg_notify('callsheet', $1::text);

-- name: enqueue
-- The ordered subquery makes nextval() follow the batch; its ORDER BY keeps it from being pulled up.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
), asked AS (
    SELECT a.job_id, clock.now,
           CASE cardinality($3::text[]) WHEN 1 THEN ($3::text[])[1] ELSE a.requester_id END AS requester_id,
           CASE cardinality($4::text[]) WHEN 1 THEN ($4::text[])[1] ELSE a.contract END AS contract,
           CASE cardinality($5::text[]) WHEN 1 THEN ($5::text[])[1] ELSE a.kind END AS kind,
           CASE cardinality($6::text[]) WHEN 1 THEN ($6::text[])[1] ELSE a.queue END AS queue,
           CASE cardinality($7::integer[]) WHEN 1 THEN ($7::integer[])[1] ELSE a.priority END AS priority,
           CASE cardinality($8::bigint[]) WHEN 1 THEN ($8::bigint[])[1] ELSE a.at END AS at,
           CASE cardinality($9::bigint[]) WHEN 1 THEN ($9::bigint[])[1] ELSE a.delay_ms END AS delay_ms,
           CASE cardinality($10::text[]) WHEN 1 THEN ($10::text[])[1] ELSE a.payload END AS payload,
           CASE cardinality($11::integer[]) WHEN 1 THEN ($11::integer[])[1] ELSE a.max_attempts END AS max_attempts,
           CASE cardinality($12::text[]) WHEN 1 THEN ($12::text[])[1] ELSE a.retry END AS retry,
           CASE cardinality($13::text[]) WHEN 1 THEN ($13::text[])[1] ELSE a.unique_key END AS unique_key,
           CASE cardinality($14::text[]) WHEN 1 THEN ($14::text[])[1] ELSE a.concurrency_key END AS concurrency_key,
           CASE cardinality($15::text[]) WHEN 1 THEN ($15::text[])[1] ELSE a.on_dependency_failure END AS on_dependency_failure,
           CASE cardinality($16::bigint[]) WHEN 1 THEN ($16::bigint[])[1] ELSE a.ttl_s END AS ttl_s,
           CASE cardinality($17::text[]) WHEN 1 THEN ($17::text[])[1] ELSE a.correlation_id END AS correlation_id
    FROM unnest(
        $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::integer[], $8::bigint[], $9::bigint[],
        $10::text[], $11::integer[], $12::text[], $13::text[], $14::text[], $15::text[], $16::bigint[], $17::text[]
    ) WITH ORDINALITY AS a (
        job_id, requester_id, contract, kind, queue, priority, at, delay_ms, payload, max_attempts, retry, unique_key,
        concurrency_key, on_dependency_failure, ttl_s, correlation_id, ord
    ) CROSS JOIN clock ORDER BY a.ord
), numbered AS MATERIALIZED (
    SELECT nextval('inbox_jobs_line') AS seq, asked.*, coalesce(at, now + delay_ms) AS run_at FROM asked
), created AS (
    INSERT INTO inbox_jobs (
        seq, position, job_id, requester_id, contract, kind, queue, priority, held, run_at, payload, max_attempts, retry,
        created_at, updated_at, event_ms, unique_key, concurrency_key, on_dependency_failure, ttl_s, correlation_id
    )
    SELECT seq, seq, job_id, requester_id, contract, kind, queue, priority,
           CASE WHEN run_at > now THEN 'delay' WHEN concurrency_key IS NOT NULL THEN 'slot' END,
           run_at, payload, max_attempts, retry, now, now, now, unique_key, concurrency_key, on_dependency_failure,
           ttl_s, correlation_id
    FROM numbered
    RETURNING seq, job_id, requester_id
)
INSERT INTO job_register SELECT seq, job_id, requester_id FROM created RETURNING job_id;

-- name: enqueue_alike
-- As enqueue, for plain jobs that differ in nothing but id and payload, as those of one task do: four fifths of the time.
-- A subquery with nextval() is never pulled up, so each row draws one number.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
), created AS (
    INSERT INTO inbox_jobs (
        seq, position, job_id, payload, requester_id, contract, kind, queue, priority, held, run_at, max_attempts, retry,
        created_at, updated_at, event_ms, on_dependency_failure, ttl_s, correlation_id
    )
    SELECT a.seq, a.seq, a.job_id, a.payload, $4, $5, $6, $7, $8::integer,
           CASE WHEN coalesce($9::bigint, (SELECT now FROM clock) + $10::bigint) > (SELECT now FROM clock) THEN 'delay' END,
           coalesce($9, (SELECT now FROM clock) + $10), $11::integer, $12,
           (SELECT now FROM clock), (SELECT now FROM clock), (SELECT now FROM clock), $13, $14::bigint, $15
    FROM (
        SELECT nextval('inbox_jobs_line') AS seq, job_id, payload
        FROM unnest(string_to_array($2::text, ',')::uuid[], $3::text[]) AS asked (job_id, payload)
    ) a
    RETURNING seq, job_id, requester_id
)
INSERT INTO job_register SELECT seq, job_id, requester_id FROM created;

-- name: enqueue_unique
-- As enqueue, but a job whose unique key is taken is left out. A holder that is not yet committed is waited for.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
), asked AS (
    SELECT a.job_id, clock.now,
           CASE cardinality($3::text[]) WHEN 1 THEN ($3::text[])[1] ELSE a.requester_id END AS requester_id,
           CASE cardinality($4::text[]) WHEN 1 THEN ($4::text[])[1] ELSE a.contract END AS contract,
           CASE cardinality($5::text[]) WHEN 1 THEN ($5::text[])[1] ELSE a.kind END AS kind,
           CASE cardinality($6::text[]) WHEN 1 THEN ($6::text[])[1] ELSE a.queue END AS queue,
           CASE cardinality($7::integer[]) WHEN 1 THEN ($7::integer[])[1] ELSE a.priority END AS priority,
           CASE cardinality($8::bigint[]) WHEN 1 THEN ($8::bigint[])[1] ELSE a.at END AS at,
           CASE cardinality($9::bigint[]) WHEN 1 THEN ($9::bigint[])[1] ELSE a.delay_ms END AS delay_ms,
           CASE cardinality($10::text[]) WHEN 1 THEN ($10::text[])[1] ELSE a.payload END AS payload,
           CASE cardinality($11::integer[]) WHEN 1 THEN ($11::integer[])[1] ELSE a.max_attempts END AS max_attempts,
           CASE cardinality($12::text[]) WHEN 1 THEN ($12::text[])[1] ELSE a.retry END AS retry,
           CASE cardinality($13::text[]) WHEN 1 THEN ($13::text[])[1] ELSE a.unique_key END AS unique_key,
           CASE cardinality($14::text[]) WHEN 1 THEN ($14::text[])[1] ELSE a.concurrency_key END AS concurrency_key,
           CASE cardinality($15::text[]) WHEN 1 THEN ($15::text[])[1] ELSE a.on_dependency_failure END AS on_dependency_failure,
           CASE cardinality($16::bigint[]) WHEN 1 THEN ($16::bigint[])[1] ELSE a.ttl_s END AS ttl_s,
           CASE cardinality($17::text[]) WHEN 1 THEN ($17::text[])[1] ELSE a.correlation_id END AS correlation_id
    FROM unnest(
        $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::integer[], $8::bigint[], $9::bigint[],
        $10::text[], $11::integer[], $12::text[], $13::text[], $14::text[], $15::text[], $16::bigint[], $17::text[]
    ) WITH ORDINALITY AS a (
        job_id, requester_id, contract, kind, queue, priority, at, delay_ms, payload, max_attempts, retry, unique_key,
        concurrency_key, on_dependency_failure, ttl_s, correlation_id, ord
    ) CROSS JOIN clock ORDER BY a.ord
), numbered AS MATERIALIZED (
    SELECT nextval('inbox_jobs_line') AS seq, asked.*, coalesce(at, now + delay_ms) AS run_at FROM asked
), created AS (
    INSERT INTO inbox_jobs (
        seq, position, job_id, requester_id, contract, kind, queue, priority, held, run_at, payload, max_attempts, retry,
        created_at, updated_at, event_ms, unique_key, concurrency_key, on_dependency_failure, ttl_s, correlation_id
    )
    SELECT seq, seq, job_id, requester_id, contract, kind, queue, priority,
           CASE WHEN run_at > now THEN 'delay' WHEN concurrency_key IS NOT NULL THEN 'slot' END,
           run_at, payload, max_attempts, retry, now, now, now, unique_key, concurrency_key, on_dependency_failure,
           ttl_s, correlation_id
    FROM numbered
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND status IN ('queued', 'running') DO NOTHING
    RETURNING seq, job_id, requester_id
)
INSERT INTO job_register SELECT seq, job_id, requester_id FROM created RETURNING job_id;

-- name: depth
-- Queued jobs of a queue, counted no further than the limit in each of the ways to be held.
SELECT (SELECT count(*) FROM (SELECT 1 FROM inbox_jobs WHERE queue = $1 AND status = 'queued' AND held IS NULL LIMIT $2::bigint) a)
     + (SELECT count(*) FROM (SELECT 1 FROM inbox_jobs WHERE queue = $1 AND status = 'queued' AND held = 'delay' LIMIT $2::bigint) b)
     + (SELECT count(*) FROM (SELECT 1 FROM inbox_jobs WHERE queue = $1 AND status = 'queued' AND held = 'dependency' LIMIT $2::bigint) c)
     + (SELECT count(*) FROM (SELECT 1 FROM inbox_jobs WHERE queue = $1 AND status = 'queued' AND held = 'slot' LIMIT $2::bigint) d);

-- name: lock_quota
-- Those who are held to the same requester's quota come one after the other; all others do not notice.
SELECT pg_advisory_xact_lock(hashtextextended('callsheet quota ' || $1::text, 0));

-- name: queued_of
SELECT count(*) FROM (
    SELECT 1 FROM inbox_jobs WHERE requester_id = $1 AND requester_id <> '' AND status = 'queued' LIMIT $2::bigint
) a;

-- name: queued_of_many
SELECT a.name, (
    SELECT count(*) FROM (
        SELECT 1 FROM inbox_jobs WHERE requester_id = a.name AND requester_id <> '' AND status = 'queued' LIMIT $2::bigint
    ) b
) FROM unnest($1::text[]) AS a (name);

-- name: queued_of_nobody
-- Jobs without a requester are in no index of requesters, which would slow down each of them: this looks at all that wait.
SELECT count(*) FROM (
    SELECT 1 FROM inbox_jobs WHERE status = 'queued' AND held IS NULL AND requester_id = $1
    UNION ALL SELECT 1 FROM inbox_jobs WHERE status = 'queued' AND held = 'delay' AND requester_id = $1
    UNION ALL SELECT 1 FROM inbox_jobs WHERE status = 'queued' AND held = 'dependency' AND requester_id = $1
    UNION ALL SELECT 1 FROM inbox_jobs WHERE status = 'queued' AND held = 'slot' AND requester_id = $1
    LIMIT $2::bigint
) a;

-- name: active_unique
SELECT unique_key, job_id FROM inbox_jobs
WHERE unique_key = ANY ($1::text[]) AND unique_key IS NOT NULL AND status IN ('queued', 'running');

-- name: remember
-- Takes keys that are new or expired; a concurrent holder is waited for. A key that is held gives no row.
INSERT INTO idempotency_keys AS k
SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::bigint[])
    AS a (requester_id, idempotency_key, request_hash, job_id, response, expires_at)
ORDER BY a.requester_id, a.idempotency_key
ON CONFLICT (requester_id, idempotency_key) DO UPDATE SET
    request_hash = excluded.request_hash, job_id = excluded.job_id, response = excluded.response,
    expires_at = excluded.expires_at
WHERE k.expires_at <= $1::bigint
RETURNING requester_id, idempotency_key;

-- name: remember_other
UPDATE idempotency_keys k SET job_id = a.job_id
FROM unnest($1::text[], $2::text[], $3::uuid[]) AS a (requester_id, idempotency_key, job_id)
WHERE k.requester_id = a.requester_id AND k.idempotency_key = a.idempotency_key;

-- name: idempotency_record
SELECT k.requester_id, k.idempotency_key, k.request_hash, k.job_id, k.response, k.expires_at
FROM unnest($2::text[], $3::text[]) AS a (requester_id, idempotency_key)
JOIN idempotency_keys k ON k.requester_id = a.requester_id AND k.idempotency_key = a.idempotency_key
WHERE k.expires_at > coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);

-- name: touch_parents
-- A new row version, not a mere lock: a settle whose snapshot is older finds the row changed (`succeed` reads the new
-- version, `settle` leaves it to the locked road), and looks again for dependents with a fresh one. FOR SHARE would leave it blind to the rows of job_dependencies that come with this.
WITH parents AS MATERIALIZED (
    SELECT job_id FROM inbox_jobs WHERE job_id = ANY ($1::uuid[]) ORDER BY job_id FOR NO KEY UPDATE
)
UPDATE inbox_jobs j SET has_dependents = true FROM parents p WHERE j.job_id = p.job_id
RETURNING j.job_id, j.status;

-- name: depend
INSERT INTO job_dependencies (depends_on, job_id) SELECT * FROM unnest($1::uuid[], $2::uuid[]);

-- name: block
UPDATE inbox_jobs j SET held = 'dependency', blocked_by = a.blocked_by, broken_by = a.broken_by
FROM unnest($1::uuid[], $2::integer[], $3::uuid[]) AS a (job_id, blocked_by, broken_by) WHERE j.job_id = a.job_id;

-- name: limit_slots
-- Locks each key's row, changed or not, until the end of the transaction.
INSERT INTO concurrency_limits AS l
SELECT * FROM unnest($1::text[], $2::integer[]) AS a (concurrency_key, max_running) ORDER BY a.concurrency_key
ON CONFLICT (concurrency_key) DO UPDATE SET max_running = excluded.max_running
WHERE l.max_running <> excluded.max_running;

-- name: lock_slots
SELECT concurrency_key FROM concurrency_limits WHERE concurrency_key = ANY ($1::text[]) ORDER BY 1 FOR UPDATE;

-- name: admit
-- Only after lock_slots, in a statement of its own: the count needs a snapshot that is younger than the lock.
WITH asked AS MATERIALIZED (
    SELECT a.concurrency_key, a.ord, l.max_running - (
        SELECT count(*) FROM inbox_jobs j WHERE j.concurrency_key = a.concurrency_key AND j.concurrency_key IS NOT NULL
        AND (j.status = 'running' OR (j.status = 'queued' AND j.held IS NULL))
    ) AS free
    FROM unnest($1::text[]) WITH ORDINALITY AS a (concurrency_key, ord)
    JOIN concurrency_limits l ON l.concurrency_key = a.concurrency_key
), chosen AS MATERIALIZED (
    SELECT w.job_id, w.priority, w.seq, a.ord FROM asked a CROSS JOIN LATERAL (
        SELECT j.job_id, j.priority, j.seq FROM inbox_jobs j
        WHERE j.concurrency_key = a.concurrency_key AND j.status = 'queued' AND j.held = 'slot'
        ORDER BY j.priority DESC, j.seq LIMIT greatest(a.free, 0) FOR UPDATE SKIP LOCKED
    ) w
), placed AS MATERIALIZED (
    SELECT nextval('inbox_jobs_line') AS position, c.job_id
    FROM (SELECT job_id FROM chosen ORDER BY ord, priority DESC, seq) c
)
UPDATE inbox_jobs j SET held = NULL, position = p.position FROM placed p WHERE j.job_id = p.job_id
RETURNING j.queue;

-- name: claim
-- Queues in the order asked, up to and including the first that has due jobs waiting to enter the line (`due`): those
-- must take their places before the next queue is looked at. The row is found again by its ctid, which no other
-- statement can have changed while we hold its lock; and without a join, which would copy what it joins for every row.
-- The update is the statement itself: as a part of one, its rows were copied once more, a tenth of the server's work.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
), asked AS MATERIALIZED (
    SELECT a.queue, a.floor, a.ord FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS a (queue, floor, ord)
    WHERE NOT EXISTS (SELECT FROM paused_queues p WHERE p.queue = a.queue) ORDER BY a.ord
), due AS MATERIALIZED (
    SELECT min(a.ord) AS ord FROM asked a CROSS JOIN clock CROSS JOIN LATERAL (
        SELECT FROM inbox_jobs j
        WHERE $8::boolean AND j.queue = a.queue AND j.status = 'queued' AND j.held = 'delay' AND j.run_at <= clock.now
        ORDER BY j.run_at, j.seq LIMIT 1
    ) d
), chosen AS MATERIALIZED (
    SELECT l.row_id FROM asked a CROSS JOIN LATERAL (
        SELECT j.ctid AS row_id FROM inbox_jobs j
        WHERE j.queue = a.queue AND j.status = 'queued' AND j.held IS NULL AND j.position >= a.floor
        ORDER BY j.priority DESC, j.position LIMIT $4::bigint FOR UPDATE SKIP LOCKED
    ) l
    WHERE a.ord <= coalesce((SELECT ord FROM due), a.ord) LIMIT $4::bigint
)
UPDATE inbox_jobs j SET
    status = 'running', worker_id = $5, claim_version = j.claim_version + 1,
    lease_expires_at = (SELECT now FROM clock) + $6::bigint, heartbeat_at = (SELECT now FROM clock),
    updated_at = greatest((SELECT now FROM clock), j.event_ms),
    attempt_count = j.attempt_count + $7::integer,
    attempt_started_at = CASE WHEN $7 = 1 THEN greatest((SELECT now FROM clock), j.event_ms) END,
    started_at = CASE WHEN $7 = 1 AND j.started_at IS NULL THEN greatest((SELECT now FROM clock), j.event_ms) ELSE j.started_at END,
    event_seq = j.event_seq + $7,
    event_ms = CASE WHEN $7 = 1 THEN greatest((SELECT now FROM clock), j.event_ms) ELSE j.event_ms END,
    began_ms = CASE WHEN $7 = 1 THEN greatest((SELECT now FROM clock), j.event_ms) END
WHERE j.ctid = ANY (ARRAY(SELECT row_id FROM chosen))
RETURNING -- what the caller cannot know of a job that it has just claimed; NULL for what is usual, which costs least
    (SELECT now FROM clock), (SELECT ord FROM due), j.position, j.job_id, NULLIF(j.requester_id, ''),
    j.contract, j.kind,
    j.queue, j.priority, NULLIF(j.stage, ''), NULLIF(j.progress, 0), NULLIF(j.run_at, j.created_at), j.payload, j.result,
    j.error, NULLIF(j.claim_version, 1), NULLIF(j.attempt_count, 1), j.max_attempts, NULLIF(j.lease_losses, 0),
    NULLIF(j.refresh_count, 0), NULLIF(j.retry, ''), j.created_at, j.started_at, j.cancel_requested_at,
    j.cancel_reason, j.unique_key, j.concurrency_key, NULLIF(j.blocked_by, 0), j.broken_by,
    NULLIF(j.on_dependency_failure, 'cancel'), j.ttl_s, NULLIF(j.correlation_id, ''), NULLIF(j.event_seq, 2),
    j.event_ms;

-- name: tell_claims
-- In the transaction of the claims that are told of.
INSERT INTO job_outbox_events (event_id, job_id, requester_id, endpoint, body, run_at, created_at, destination)
SELECT a.event_id, a.job_id, a.requester_id, a.endpoint, a.body, $1::bigint, $1, a.destination
FROM unnest($2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[])
    WITH ORDINALITY AS a (event_id, job_id, requester_id, endpoint, body, destination, place)
ORDER BY a.place;

-- name: due
-- What a claim without rows cannot tell: the first of the queues (from 1) that has due jobs waiting to enter the line, and
-- whether one before it has jobs in line. That claim may have stopped at due jobs which others have lined up meanwhile.
WITH asked AS MATERIALIZED (
    SELECT a.queue, a.floor, a.ord FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS a (queue, floor, ord)
    WHERE NOT EXISTS (SELECT FROM paused_queues p WHERE p.queue = a.queue)
), due AS MATERIALIZED (
    SELECT min(a.ord) AS ord FROM asked a CROSS JOIN LATERAL (
        SELECT FROM inbox_jobs j
        WHERE j.queue = a.queue AND j.status = 'queued' AND j.held = 'delay' AND j.run_at <= (
            SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
        )
        ORDER BY j.run_at, j.seq LIMIT 1
    ) d
)
SELECT due.ord, cardinality($2) > 1 AND EXISTS (
    SELECT FROM asked a CROSS JOIN LATERAL (
        SELECT FROM inbox_jobs j
        WHERE j.queue = a.queue AND j.status = 'queued' AND j.held IS NULL AND j.position >= a.floor
        ORDER BY j.priority DESC, j.position LIMIT 1
    ) l WHERE a.ord < coalesce(due.ord, cardinality($2) + 1)
) FROM due;

-- name: line_start
-- The lowest live position of a queue from $2 on, by one probe for each priority in use, the end of the line, and the
-- place of the last job that has ended $4 ms ago or earlier. With very many priorities it gives up: 0 hides nothing.
WITH RECURSIVE step AS (
    (
        SELECT 1 AS n, priority, position FROM inbox_jobs
        WHERE queue = $1 AND status = 'queued' AND held IS NULL AND position >= $2::bigint
        ORDER BY priority DESC, position LIMIT 1
    )
    UNION ALL
    SELECT s.n + 1, l.priority, l.position FROM step s CROSS JOIN LATERAL (
        SELECT j.priority, j.position FROM inbox_jobs j
        WHERE j.queue = $1 AND j.status = 'queued' AND j.held IS NULL AND j.priority < s.priority
          AND j.position >= $2
        ORDER BY j.priority DESC, j.position LIMIT 1
    ) l WHERE s.n < 100
)
SELECT CASE WHEN count(*) < 100 THEN min(position) ELSE 0 END, (SELECT last_value FROM inbox_jobs_line), (
    SELECT greatest(position, seq) FROM inbox_jobs WHERE ended_at <= (
        SELECT coalesce($3::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $4::bigint
    ) ORDER BY ended_at DESC, seq DESC LIMIT 1
) FROM step;

-- name: ready_jobs
-- What is left of the priority, of the queue, and of the others: three ranges of the index, each read to the limit.
SELECT job_id, queue, claim_version, priority, position FROM (
    (
        SELECT job_id, queue, claim_version, priority, position FROM inbox_jobs
        WHERE queue = $1 AND priority = $2::integer AND position > $3::bigint AND status = 'queued' AND held IS NULL
        ORDER BY position LIMIT $4::bigint
    )
    UNION ALL
    (
        SELECT job_id, queue, claim_version, priority, position FROM inbox_jobs
        WHERE queue = $1 AND priority < $2 AND status = 'queued' AND held IS NULL
        ORDER BY priority DESC, position LIMIT $4
    )
    UNION ALL
    (
        SELECT job_id, queue, claim_version, priority, position FROM inbox_jobs
        WHERE queue > $1 AND status = 'queued' AND held IS NULL
        ORDER BY queue, priority DESC, position LIMIT $4
    )
) AS line ORDER BY queue, priority DESC, position LIMIT $4;

-- name: line_up_due
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
), due AS MATERIALIZED (
    SELECT j.job_id, j.run_at, j.seq, j.concurrency_key FROM clock CROSS JOIN LATERAL (
        SELECT job_id, run_at, seq, concurrency_key FROM inbox_jobs
        WHERE queue = $2 AND status = 'queued' AND held = 'delay' AND run_at <= clock.now
        ORDER BY run_at, seq LIMIT $3::bigint FOR UPDATE SKIP LOCKED
    ) j
), placed AS MATERIALIZED (
    SELECT nextval('inbox_jobs_line') AS position, d.job_id
    FROM (SELECT job_id FROM due WHERE concurrency_key IS NULL ORDER BY run_at, seq) d
), lined_up AS (
    UPDATE inbox_jobs j SET held = CASE WHEN d.concurrency_key IS NOT NULL THEN 'slot' END,
        position = coalesce(p.position, j.position)
    FROM due d LEFT JOIN placed p ON p.job_id = d.job_id WHERE j.job_id = d.job_id
)
SELECT concurrency_key FROM due ORDER BY run_at, seq;

-- name: delayed_queues
-- One probe for each queue, not a read of all delayed jobs.
WITH RECURSIVE q AS (
    (SELECT queue FROM inbox_jobs WHERE status = 'queued' AND held = 'delay' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT n.queue FROM q CROSS JOIN LATERAL (
        SELECT j.queue FROM inbox_jobs j WHERE j.status = 'queued' AND j.held = 'delay' AND j.queue > q.queue
        ORDER BY j.queue LIMIT 1
    ) n
)
SELECT queue FROM q;

-- name: keys_waiting
WITH RECURSIVE k AS (
    (SELECT concurrency_key FROM inbox_jobs WHERE status = 'queued' AND held = 'slot' ORDER BY concurrency_key LIMIT 1)
    UNION ALL
    SELECT n.concurrency_key FROM k CROSS JOIN LATERAL (
        SELECT j.concurrency_key FROM inbox_jobs j
        WHERE j.status = 'queued' AND j.held = 'slot' AND j.concurrency_key > k.concurrency_key
        ORDER BY j.concurrency_key LIMIT 1
    ) n
)
SELECT concurrency_key FROM k;

-- name: heartbeat
-- A row that somebody's transaction holds (a new job depends on it) is not waited for: all others would wait with it.
-- Its claim still stands, and the next beat extends it.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
), held AS MATERIALIZED (
    SELECT j.job_id, j.claim_version, j.cancel_requested_at IS NOT NULL AS to_cancel
    FROM unnest($2::uuid[], $3::integer[]) AS a (job_id, claim_version) JOIN inbox_jobs j ON j.job_id = a.job_id
    WHERE j.claim_version = a.claim_version AND j.status = 'running'
), free AS MATERIALIZED (
    SELECT j.ctid AS row_id FROM held h JOIN inbox_jobs j ON j.job_id = h.job_id
    WHERE j.claim_version = h.claim_version AND j.status = 'running' ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED
), beat AS (
    UPDATE inbox_jobs j SET heartbeat_at = clock.now,
        lease_expires_at = clock.now + CASE WHEN j.cancel_requested_at IS NULL THEN $4::bigint ELSE $5::bigint END
    FROM free f CROSS JOIN clock WHERE j.ctid = f.row_id
)
SELECT job_id, claim_version, to_cancel FROM held;

-- name: settle
-- Optimistic: `cur` reads the rows without locks, and the update takes only rows that are still that very version
-- (ctid and xmin), so that whatever else was read by the statement's one snapshot still holds. A row that was changed
-- meanwhile is not moved; the caller decides it again with the row locked. With $2 nothing at all is done if a job
-- has a concurrency key or dependents to serve (ord 0 says so). flags: 1 starts, 2 refund, 4 lease lost,
-- 8 refreshed, 16 only if expired. The caller sorts by job id, against deadlocks, where the order has no other meaning.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
), asked AS (
    SELECT a.job_id, a.ord, clock.now,
           CASE cardinality($4::integer[]) WHEN 1 THEN ($4::integer[])[1] ELSE a.claim_version END AS claim_version,
           CASE cardinality($5::text[]) WHEN 1 THEN ($5::text[])[1] ELSE a.from_status END AS from_status,
           CASE cardinality($6::text[]) WHEN 1 THEN ($6::text[])[1] ELSE a.status END AS status,
           CASE cardinality($7::integer[]) WHEN 1 THEN ($7::integer[])[1] ELSE a.flags END AS flags,
           CASE cardinality($8::text[]) WHEN 1 THEN ($8::text[])[1] ELSE a.stage END AS stage,
           CASE cardinality($9::float8[]) WHEN 1 THEN ($9::float8[])[1] ELSE a.progress END AS progress,
           CASE cardinality($10::text[]) WHEN 1 THEN ($10::text[])[1] ELSE a.result END AS result,
           CASE cardinality($11::text[]) WHEN 1 THEN ($11::text[])[1] ELSE a.error END AS error,
           CASE cardinality($12::integer[]) WHEN 1 THEN ($12::integer[])[1] ELSE a.fresh_attempts END AS fresh_attempts,
           CASE cardinality($13::text[]) WHEN 1 THEN ($13::text[])[1] ELSE a.cancel_reason END AS cancel_reason,
           CASE cardinality($14::bigint[]) WHEN 1 THEN ($14::bigint[])[1] ELSE a.delay_ms END AS delay_ms,
           CASE cardinality($15::text[]) WHEN 1 THEN ($15::text[])[1] ELSE a.outcome END AS outcome,
           CASE cardinality($16::text[]) WHEN 1 THEN ($16::text[])[1] ELSE a.event_type END AS event_type,
           CASE cardinality($17::text[]) WHEN 1 THEN ($17::text[])[1] ELSE a.event_step END AS event_step,
           CASE cardinality($18::text[]) WHEN 1 THEN ($18::text[])[1] ELSE a.event_data END AS event_data,
           CASE cardinality($28::bigint[]) WHEN 1 THEN ($28::bigint[])[1] ELSE a.silence_ms END AS silence_ms
    FROM unnest(
        $3::uuid[], $4::integer[], $5::text[], $6::text[], $7::integer[], $8::text[], $9::float8[], $10::text[],
        $11::text[], $12::integer[], $13::text[], $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[], $28::bigint[]
    ) WITH ORDINALITY AS a (
        job_id, claim_version, from_status, status, flags, stage, progress, result, error, fresh_attempts,
        cancel_reason, delay_ms, outcome, event_type, event_step, event_data, silence_ms, ord
    ) CROSS JOIN clock
), cur AS MATERIALIZED (
    SELECT o.ctid AS row_id, o.xmin AS row_version, a.*, o.concurrency_key, greatest(a.now, o.event_ms) AS at,
           o.attempt_started_at AS begun_at, o.worker_id AS owner,
           o.began_ms, o.event_seq AS began_seq, o.stage AS began_step, o.progress AS began_progress,
           o.attempt_count + CASE WHEN a.flags & 1 = 1 AND o.attempt_started_at IS NULL THEN 1 ELSE 0 END AS attempt
    FROM asked a JOIN inbox_jobs o ON o.job_id = a.job_id
    WHERE o.claim_version = a.claim_version AND o.status = a.from_status
      AND (a.flags & 16 = 0 OR o.lease_expires_at < a.now)
), special AS MATERIALIZED (
    SELECT $2::boolean AND EXISTS (
        SELECT FROM cur c WHERE c.status <> 'running' AND (
            c.concurrency_key IS NOT NULL
            OR (c.status <> 'queued' AND EXISTS (SELECT FROM job_dependencies d WHERE d.depends_on = c.job_id))
        )
    ) AS found
), placed AS MATERIALIZED (
    SELECT nextval('inbox_jobs_line') AS position, q.ord
    FROM (SELECT c.ord FROM cur c WHERE c.status = 'queued' ORDER BY c.ord) q
), moved AS (
    UPDATE inbox_jobs j SET
        status = c.status,
        updated_at = c.at,
        stage = coalesce(c.stage, j.stage),
        progress = greatest(j.progress, c.progress),
        attempt_count = c.attempt - (c.flags >> 1 & 1),
        started_at = CASE WHEN c.flags & 1 = 1 THEN coalesce(j.started_at, c.at) ELSE j.started_at END,
        attempt_started_at = CASE WHEN c.status <> 'running' THEN NULL
            WHEN c.flags & 1 = 1 THEN coalesce(j.attempt_started_at, c.at) ELSE j.attempt_started_at END,
        lease_losses = CASE WHEN j.ended_at IS NOT NULL THEN 0 ELSE j.lease_losses + (c.flags >> 2 & 1) END,
        refresh_count = j.refresh_count + (c.flags >> 3 & 1),
        result = coalesce(c.result, j.result),
        error = CASE WHEN c.status = 'succeeded' THEN NULL ELSE coalesce(c.error, j.error) END,
        max_attempts = CASE WHEN c.fresh_attempts <> 0 THEN j.attempt_count + c.fresh_attempts ELSE j.max_attempts END,
        cancel_requested_at = CASE WHEN j.ended_at IS NOT NULL THEN NULL
            WHEN c.cancel_reason IS NOT NULL THEN coalesce(j.cancel_requested_at, c.at) ELSE j.cancel_requested_at END,
        cancel_reason = CASE WHEN j.ended_at IS NOT NULL THEN NULL ELSE coalesce(c.cancel_reason, j.cancel_reason) END,
        blocked_by = CASE WHEN j.ended_at IS NOT NULL THEN 0 ELSE j.blocked_by END,
        broken_by = CASE WHEN j.ended_at IS NOT NULL THEN NULL ELSE j.broken_by END,
        lease_expires_at = CASE WHEN c.status = 'running' THEN least(j.lease_expires_at, j.heartbeat_at + c.silence_ms) END,
        heartbeat_at = CASE WHEN c.status = 'running' THEN j.heartbeat_at END,
        ended_at = CASE WHEN c.status IN ('queued', 'running') THEN NULL ELSE c.at END,
        worker_id = CASE WHEN c.status = 'queued' THEN NULL ELSE j.worker_id END,
        run_at = CASE WHEN c.status = 'queued' THEN c.now + c.delay_ms ELSE j.run_at END,
        position = coalesce(p.position, j.position),
        held = CASE WHEN c.status <> 'queued' THEN NULL WHEN c.delay_ms > 0 THEN 'delay'
            WHEN j.concurrency_key IS NOT NULL THEN 'slot' END,
        event_seq = j.event_seq + CASE WHEN c.event_type IS NULL THEN 0 ELSE 1 END,
        event_ms = CASE WHEN c.event_type IS NULL THEN j.event_ms ELSE c.at END,
        began_ms = NULL
    FROM special CROSS JOIN cur c LEFT JOIN placed p ON p.ord = c.ord
    WHERE j.ctid = c.row_id AND j.xmin = c.row_version AND NOT special.found
    RETURNING j.job_id, j.queue, j.status, j.held, j.event_seq, j.progress, j.requester_id, j.concurrency_key, c.claim_version, c.at, c.now, c.begun_at,
        c.owner, c.attempt, c.outcome, c.error, c.event_type, c.event_step, c.event_data, c.ord,
        c.began_ms, c.began_seq, c.began_step, c.began_progress
), noted AS (
    INSERT INTO job_events
    SELECT job_id, began_seq, began_ms, 'running', began_step, began_progress, '{}' FROM moved WHERE began_ms IS NOT NULL
    UNION ALL
    SELECT job_id, event_seq, at, event_type, event_step, progress, event_data FROM moved WHERE event_type IS NOT NULL
), attempted AS (
    INSERT INTO job_attempts
    SELECT job_id, claim_version, attempt, owner, coalesce(begun_at, at), at, outcome, error
    FROM moved WHERE outcome <> 'succeeded'
), kept AS (
    INSERT INTO job_checkpoints
    SELECT m.job_id, a.name, a.data FROM unnest($19::bigint[], $20::text[], $21::text[]) AS a (ord, name, data)
    JOIN moved m ON m.ord = a.ord
    ON CONFLICT (job_id, name) DO UPDATE SET data = excluded.data
), told AS (
    INSERT INTO job_outbox_events (event_id, job_id, requester_id, endpoint, body, run_at, created_at, destination)
    SELECT a.event_id, m.job_id, m.requester_id, a.endpoint,
           CASE WHEN a.stamp = '' THEN a.body ELSE left(a.body, -1) || ',"' || a.stamp || '":' || m.at || '}' END,
           m.now, m.now, a.destination
    FROM unnest($22::bigint[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[])
        WITH ORDINALITY AS a (ord, event_id, endpoint, body, stamp, destination, place)
    JOIN moved m ON m.ord = a.ord ORDER BY a.place
), forgot AS (
    DELETE FROM job_credentials t USING moved m WHERE t.job_id = m.job_id AND m.status IN ('succeeded', 'canceled')
)
SELECT ord, concurrency_key, CASE WHEN status = 'queued' AND held IS NULL THEN queue END FROM moved
UNION ALL SELECT 0, NULL, NULL FROM special WHERE found;

-- name: outbox_known
SELECT event_id, job_id FROM job_outbox_events WHERE event_id = ANY ($1::text[]);

-- name: holds
SELECT 1 FROM inbox_jobs WHERE job_id = $1::uuid AND claim_version = $2::integer AND status = $3::text;

-- name: succeed
-- The usual end of most jobs, as `settle` would write it, in half of the time. Jobs with a concurrency key or dependents
-- are left to it. Ids come as one text, in order, so that a job's place among them is found by halving; a list of one
-- version, result or step is for all. There is no join, which would copy what it joins for every row. A row that was
-- changed meanwhile is judged by its new version. The answer is those that were moved; NULL: all of them.
WITH asked AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now,
           string_to_array($2::text, ',')::uuid[] AS ids,
           'running' AS running -- not a literal below, else the planner may read all running jobs by their own index
), moved AS (
    UPDATE inbox_jobs j SET
        status = 'succeeded', progress = 100, error = NULL, lease_expires_at = NULL, heartbeat_at = NULL,
        attempt_started_at = NULL, event_seq = j.event_seq + 1,
        ended_at = greatest((SELECT now FROM asked), j.event_ms),
        updated_at = greatest((SELECT now FROM asked), j.event_ms),
        event_ms = greatest((SELECT now FROM asked), j.event_ms),
        result = $4::jsonb ->> CASE jsonb_array_length($4)
            WHEN 1 THEN 0 ELSE width_bucket(j.job_id, (SELECT ids FROM asked)) - 1 END
    WHERE j.job_id = ANY ((SELECT ids FROM asked)::uuid[])
      AND j.claim_version = ($3::integer[])[CASE cardinality($3)
            WHEN 1 THEN 1 ELSE width_bucket(j.job_id, (SELECT ids FROM asked)) END]
      AND j.stage = $5::jsonb ->> CASE jsonb_array_length($5)
            WHEN 1 THEN 0 ELSE width_bucket(j.job_id, (SELECT ids FROM asked)) - 1 END
      AND j.status = (SELECT running FROM asked) AND j.concurrency_key IS NULL AND NOT j.has_dependents
      AND (j.began_ms IS NULL OR j.progress = 0)
    RETURNING j.job_id
)
SELECT CASE WHEN count(*) < cardinality((SELECT ids FROM asked)) THEN coalesce(array_agg(job_id), '{}') END FROM moved;

-- name: lock_jobs
SELECT job_id FROM inbox_jobs WHERE job_id = ANY ($1::uuid[]) ORDER BY job_id FOR UPDATE;

-- name: ties
-- What hangs on jobs that are locked by now: their concurrency key, and whether others wait for them.
SELECT j.job_id, j.concurrency_key, EXISTS (SELECT FROM job_dependencies d WHERE d.depends_on = j.job_id)
FROM inbox_jobs j WHERE j.job_id = ANY ($1::uuid[]);

-- name: lock_dependents
-- All of a batch in order of id, before it frees them one parent after another: two batches would meet crosswise.
SELECT j.job_id FROM inbox_jobs j
WHERE j.job_id IN (SELECT d.job_id FROM job_dependencies d WHERE d.depends_on = ANY ($1::uuid[]))
ORDER BY j.job_id FOR UPDATE OF j;

-- name: repeated
SELECT a.ord FROM unnest($1::uuid[], $2::integer[], $3::text[]) WITH ORDINALITY AS a (job_id, claim_version, outcome, ord)
JOIN job_attempts t ON t.job_id = a.job_id AND t.claim_version = a.claim_version AND t.outcome = a.outcome
UNION ALL
SELECT a.ord FROM unnest($1::uuid[], $2::integer[], $3::text[]) WITH ORDINALITY AS a (job_id, claim_version, outcome, ord)
JOIN inbox_jobs j ON j.job_id = a.job_id AND j.claim_version = a.claim_version
WHERE a.outcome = 'succeeded' AND j.status = 'succeeded';

-- name: dependents
SELECT j.job_id, j.blocked_by, j.run_at, j.concurrency_key, j.on_dependency_failure, j.queue
FROM job_dependencies d JOIN inbox_jobs j ON j.job_id = d.job_id
WHERE d.depends_on = $1 AND j.status = 'queued' AND j.held = 'dependency' ORDER BY j.seq FOR UPDATE OF j;

-- name: undepend
DELETE FROM job_dependencies WHERE depends_on = $1 AND job_id = ANY ($2::uuid[]);

-- name: unblock
WITH placed AS MATERIALIZED (
    SELECT nextval('inbox_jobs_line') AS position, a.job_id, a.held
    FROM (
        SELECT u.job_id, u.held FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS u (job_id, held, ord) ORDER BY u.ord
    ) a
)
UPDATE inbox_jobs j SET blocked_by = j.blocked_by - 1, position = p.position,
    held = CASE WHEN j.blocked_by > 1 THEN 'dependency' ELSE p.held END
FROM placed p WHERE j.job_id = p.job_id;

-- name: break_dependents
UPDATE inbox_jobs SET broken_by = coalesce(broken_by, $1) WHERE job_id = ANY ($2::uuid[]);

-- name: with_expired_lease
SELECT * FROM inbox_jobs
WHERE status = 'running'
  AND lease_expires_at < coalesce($1::bigint, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint)
ORDER BY lease_expires_at, seq LIMIT $2::bigint;

-- name: running_of
SELECT * FROM inbox_jobs WHERE status = 'running' AND lease_expires_at IS NOT NULL AND worker_id = $1::text
ORDER BY seq LIMIT $2::bigint;

-- name: with_failed_dependency
SELECT * FROM inbox_jobs WHERE status = 'queued' AND broken_by IS NOT NULL ORDER BY seq LIMIT $1::bigint;

-- name: prune
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
), chosen AS MATERIALIZED (
    (
        SELECT job_id, ended_at, seq FROM inbox_jobs WHERE ended_at IS NOT NULL AND ended_at < $2::bigint
        ORDER BY ended_at, seq LIMIT $3::bigint
    )
    UNION
    SELECT j.job_id, j.ended_at, j.seq FROM clock CROSS JOIN LATERAL (
        SELECT job_id, ended_at, seq FROM inbox_jobs
        WHERE ended_at IS NOT NULL AND ttl_s IS NOT NULL AND ended_at + ttl_s * 1000 < clock.now
    ) j
    ORDER BY ended_at, seq LIMIT $3::bigint
), gone AS MATERIALIZED (
    SELECT j.job_id, j.seq FROM chosen c JOIN inbox_jobs j ON j.job_id = c.job_id
    WHERE j.ended_at IS NOT NULL ORDER BY j.job_id FOR UPDATE OF j SKIP LOCKED
), register AS (
    DELETE FROM job_register t USING gone WHERE t.seq = gone.seq
), events AS (
    DELETE FROM job_events t USING gone WHERE t.job_id = gone.job_id
), attempts AS (
    DELETE FROM job_attempts t USING gone WHERE t.job_id = gone.job_id
), checkpoints AS (
    DELETE FROM job_checkpoints t USING gone WHERE t.job_id = gone.job_id
), credentials AS (
    DELETE FROM job_credentials t USING gone WHERE t.job_id = gone.job_id
), dependencies AS (
    DELETE FROM job_dependencies t USING gone WHERE t.depends_on = gone.job_id
), outbox AS (
    DELETE FROM job_outbox_events t USING gone WHERE t.job_id = gone.job_id AND t.status IN ('delivered', 'dead_letter')
), orphans AS (
    DELETE FROM job_outbox_events WHERE seq IN (
        SELECT o.seq FROM job_outbox_events o WHERE o.ended_at IS NOT NULL AND o.ended_at < $2::bigint
        AND (SELECT j.job_id FROM inbox_jobs j WHERE j.job_id = o.job_id) IS NULL -- by index; NOT EXISTS became a full scan
        ORDER BY o.ended_at, o.seq LIMIT $3::bigint
    )
), keys AS (
    DELETE FROM idempotency_keys USING clock WHERE expires_at <= clock.now
), jobs AS (
    DELETE FROM inbox_jobs t USING gone WHERE t.job_id = gone.job_id RETURNING 1
)
SELECT count(*) FROM jobs;

-- name: delete
-- A row that was changed meanwhile is judged by its new version.
WITH gone AS MATERIALIZED (
    SELECT j.job_id, j.seq FROM unnest($1::uuid[], $2::integer[]) AS a (job_id, claim_version)
    JOIN inbox_jobs j ON j.job_id = a.job_id
    WHERE j.claim_version = a.claim_version AND j.ended_at IS NOT NULL ORDER BY j.job_id FOR UPDATE OF j
), register AS (
    DELETE FROM job_register t USING gone WHERE t.seq = gone.seq
), events AS (
    DELETE FROM job_events t USING gone WHERE t.job_id = gone.job_id
), attempts AS (
    DELETE FROM job_attempts t USING gone WHERE t.job_id = gone.job_id
), checkpoints AS (
    DELETE FROM job_checkpoints t USING gone WHERE t.job_id = gone.job_id
), credentials AS (
    DELETE FROM job_credentials t USING gone WHERE t.job_id = gone.job_id
), dependencies AS (
    DELETE FROM job_dependencies t USING gone WHERE t.depends_on = gone.job_id
), outbox AS (
    DELETE FROM job_outbox_events t USING gone WHERE t.job_id = gone.job_id AND t.status IN ('delivered', 'dead_letter')
), jobs AS (
    DELETE FROM inbox_jobs t USING gone WHERE t.job_id = gone.job_id RETURNING 1
)
SELECT count(*) FROM jobs;

-- name: get
SELECT * FROM inbox_jobs WHERE job_id = ANY ($1::uuid[]);

-- name: find
SELECT j.* FROM job_register r JOIN inbox_jobs j ON j.job_id = r.job_id
WHERE r.seq < coalesce($1::bigint, 9223372036854775807) AND r.seq >= coalesce($11::bigint, 0) AND ($2::text IS NULL OR r.requester_id = $2)
  AND ($3::text IS NULL OR j.kind = $3) AND ($4::text IS NULL OR j.queue = $4)
  AND ($5::text IS NULL OR j.contract = $5) AND ($6::bigint IS NULL OR j.created_at >= $6)
  AND ($7::bigint IS NULL OR j.created_at < $7) AND ($8::text[] IS NULL OR j.status = ANY ($8))
  AND ($10::text IS NULL OR strpos(j.job_id::text, $10) > 0 OR strpos(lower(j.kind COLLATE "C"), $10) > 0
       OR strpos(lower(j.correlation_id COLLATE "C"), $10) > 0 OR strpos(lower(j.error COLLATE "C"), $10) > 0
       OR strpos(lower(j.payload COLLATE "C"), $10) > 0)
  AND ($12::boolean IS NULL OR j.ended_at IS NOT NULL OR (j.started_at IS NOT NULL) = $12)
ORDER BY r.seq DESC LIMIT $9::bigint;

-- name: find_of_requester
SELECT j.* FROM job_register r JOIN inbox_jobs j ON j.job_id = r.job_id
WHERE r.requester_id = $2 AND r.requester_id <> '' AND r.seq < coalesce($1::bigint, 9223372036854775807) AND r.seq >= coalesce($11::bigint, 0)
  AND ($3::text IS NULL OR j.kind = $3) AND ($4::text IS NULL OR j.queue = $4)
  AND ($5::text IS NULL OR j.contract = $5) AND ($6::bigint IS NULL OR j.created_at >= $6)
  AND ($7::bigint IS NULL OR j.created_at < $7) AND ($8::text[] IS NULL OR j.status = ANY ($8))
  AND ($10::text IS NULL OR strpos(j.job_id::text, $10) > 0 OR strpos(lower(j.kind COLLATE "C"), $10) > 0
       OR strpos(lower(j.correlation_id COLLATE "C"), $10) > 0 OR strpos(lower(j.error COLLATE "C"), $10) > 0
       OR strpos(lower(j.payload COLLATE "C"), $10) > 0)
  AND ($12::boolean IS NULL OR j.ended_at IS NOT NULL OR (j.started_at IS NOT NULL) = $12)
ORDER BY r.requester_id DESC, r.seq DESC LIMIT $9::bigint;

-- name: find_ended_badly
SELECT j.* FROM inbox_jobs j
WHERE j.error IS NOT NULL AND j.ended_at IS NOT NULL
  AND j.seq < coalesce($1::bigint, 9223372036854775807) AND j.seq >= coalesce($11::bigint, 0) AND ($2::text IS NULL OR j.requester_id = $2)
  AND ($3::text IS NULL OR j.kind = $3) AND ($4::text IS NULL OR j.queue = $4)
  AND ($5::text IS NULL OR j.contract = $5) AND ($6::bigint IS NULL OR j.created_at >= $6)
  AND ($7::bigint IS NULL OR j.created_at < $7) AND ($8::text[] IS NULL OR j.status = ANY ($8))
  AND ($10::text IS NULL OR strpos(j.job_id::text, $10) > 0 OR strpos(lower(j.kind COLLATE "C"), $10) > 0
       OR strpos(lower(j.correlation_id COLLATE "C"), $10) > 0 OR strpos(lower(j.error COLLATE "C"), $10) > 0
       OR strpos(lower(j.payload COLLATE "C"), $10) > 0)
  AND ($12::boolean IS NULL OR j.ended_at IS NOT NULL OR (j.started_at IS NOT NULL) = $12)
ORDER BY j.seq DESC LIMIT $9::bigint;

-- name: find_floor
-- The last of so many jobs before one; none when there are fewer, wherever pruning has left holes.
SELECT seq FROM job_register WHERE seq < coalesce($1::bigint, 9223372036854775807) ORDER BY seq DESC
OFFSET $2::bigint - 1 LIMIT 1;

-- name: ended_counts
SELECT ended_at - ended_at % $2::bigint, kind, status, count(*) FROM inbox_jobs
WHERE ended_at >= $1::bigint AND ended_at IS NOT NULL AND ($3::text IS NULL OR requester_id = $3) GROUP BY 1, 2, 3;

-- name: dead_letters
SELECT kind, count(*) FROM inbox_jobs
WHERE error IS NOT NULL AND ended_at IS NOT NULL AND status = 'dead_letter' AND ($1::text IS NULL OR requester_id = $1)
GROUP BY kind;

-- name: worker_loads
SELECT worker_id, count(*), max(heartbeat_at) FROM inbox_jobs
WHERE lease_expires_at IS NOT NULL AND status = 'running' AND worker_id IS NOT NULL
  AND ($1::text IS NULL OR requester_id = $1)
GROUP BY worker_id ORDER BY worker_id COLLATE "C";

-- name: counts
SELECT queue, status, count(*) FROM inbox_jobs GROUP BY queue, status;

-- name: backlog
-- Each branch reads one partial index over jobs that have not ended; of the line, only the first of each priority is
-- looked up in the table.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
), line AS MATERIALIZED (
    SELECT queue, priority, count(*) AS n FROM inbox_jobs
    WHERE status = 'queued' AND held IS NULL GROUP BY queue, priority
), parts AS (
    SELECT queue, n AS ready, 0 AS held, 0 AS running, (
        SELECT greatest(j.created_at, j.run_at) FROM inbox_jobs j
        WHERE j.queue = line.queue AND j.priority = line.priority AND j.status = 'queued' AND j.held IS NULL
        ORDER BY j.position LIMIT 1
    ) AS since
    FROM line
    UNION ALL
    SELECT queue, count(*) FILTER (WHERE run_at <= now), count(*) FILTER (WHERE run_at > now), 0,
           min(run_at) FILTER (WHERE run_at <= now)
    FROM inbox_jobs CROSS JOIN clock WHERE status = 'queued' AND held = 'delay' GROUP BY queue
    UNION ALL
    SELECT queue, 0, count(*), 0, NULL FROM inbox_jobs WHERE status = 'queued' AND held = 'slot' GROUP BY queue
    UNION ALL
    SELECT queue, 0, count(*), 0, NULL FROM inbox_jobs WHERE status = 'queued' AND held = 'dependency' GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, count(*), NULL FROM inbox_jobs WHERE status = 'running' GROUP BY queue
)
SELECT queue, sum(ready)::bigint, sum(held)::bigint, sum(running)::bigint,
       CASE WHEN min(since) IS NOT NULL THEN greatest(0, (SELECT now FROM clock) - min(since)) END
FROM parts GROUP BY queue;

-- name: attempts
SELECT * FROM job_attempts WHERE job_id = $1
UNION ALL
SELECT job_id, claim_version, attempt_count, worker_id,
       coalesce(began_ms, (SELECT max(ms) FROM job_events e WHERE e.job_id = $1 AND e.type = 'running')), ended_at,
       'succeeded', NULL
FROM inbox_jobs WHERE job_id = $1 AND status = 'succeeded'
ORDER BY claim_version;

-- name: keep_resumed
INSERT INTO job_checkpoints SELECT a.job_id, $2, a.data FROM unnest($1::uuid[], $3::text[]) AS a (job_id, data);

-- name: checkpoints
SELECT name, data FROM job_checkpoints WHERE job_id = $1 ORDER BY name;

-- name: events
SELECT e.* FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS a (job_id, after, ord)
CROSS JOIN LATERAL (
    SELECT * FROM job_history h WHERE h.job_id = a.job_id AND h.seq > a.after ORDER BY h.seq LIMIT $3::bigint
) e
ORDER BY a.ord, e.seq;

-- name: outbox_claim
-- The destinations are found by jumps through the index: one with 100,000 pending events costs as much as one with a
-- single one. `heads` are more than are wanted, for another claim may hold the first of them.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
), rooms AS MATERIALIZED (
    SELECT DISTINCT ON (requester_id, destination) requester_id, destination, greatest(room, 0) AS room
    FROM unnest($6::text[], $7::text[], $8::bigint[]) AS r (requester_id, destination, room)
), lost AS MATERIALIZED (
    SELECT l.seq FROM clock CROSS JOIN LATERAL (
        SELECT seq FROM job_outbox_events o WHERE status = 'delivering' AND lease_expires_at < clock.now
            AND requester_id <> ALL ($9::text[]) AND NOT EXISTS (
                SELECT 1 FROM rooms r
                WHERE r.requester_id = o.requester_id AND r.destination = o.destination AND r.room = 0
            )
        ORDER BY lease_expires_at, seq LIMIT $4::bigint FOR UPDATE SKIP LOCKED
    ) l
), destinations AS (
    (SELECT requester_id, destination FROM job_outbox_events WHERE status = 'pending'
     ORDER BY requester_id, destination LIMIT 1)
    UNION ALL
    SELECT n.requester_id, n.destination FROM destinations d CROSS JOIN LATERAL (
        SELECT requester_id, destination FROM job_outbox_events
        WHERE status = 'pending' AND (requester_id, destination) > (d.requester_id, d.destination)
        ORDER BY requester_id, destination LIMIT 1
    ) n
), shares AS MATERIALIZED (
    SELECT d.requester_id, d.destination, least(coalesce(r.room, $5::bigint), $4::bigint) AS share
    FROM destinations d LEFT JOIN rooms r USING (requester_id, destination)
    WHERE coalesce(r.room, $5::bigint) > 0 AND d.requester_id <> ALL ($9::text[])
), heads AS MATERIALIZED (
    SELECT h.seq, h.run_at FROM clock CROSS JOIN shares s CROSS JOIN LATERAL (
        SELECT seq, run_at FROM job_outbox_events
        WHERE status = 'pending' AND requester_id = s.requester_id AND destination = s.destination
            AND run_at <= clock.now
        ORDER BY run_at, seq LIMIT s.share
    ) h ORDER BY h.run_at, h.seq LIMIT 4 * $4::bigint
), due AS MATERIALIZED (
    SELECT o.seq FROM heads h JOIN job_outbox_events o ON o.seq = h.seq AND o.status = 'pending'
    ORDER BY h.run_at, h.seq LIMIT $4::bigint - (SELECT count(*) FROM lost) FOR UPDATE OF o SKIP LOCKED
), chosen AS (
    SELECT seq, 1 AS losses FROM lost UNION ALL SELECT seq, 0 FROM due
)
UPDATE job_outbox_events o SET
    status = 'delivering', worker_id = $2, claim_version = o.claim_version + 1, heartbeat_at = clock.now,
    lease_expires_at = clock.now + $3::bigint, attempt_count = o.attempt_count + c.losses
FROM chosen c CROSS JOIN clock WHERE o.seq = c.seq
RETURNING o.*;

-- name: outbox_heartbeat
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
)
UPDATE job_outbox_events o SET lease_expires_at = clock.now + $4::bigint, heartbeat_at = clock.now
FROM unnest($2::text[], $3::integer[]) AS a (event_id, claim_version) CROSS JOIN clock
WHERE o.event_id = a.event_id AND o.claim_version = a.claim_version AND o.status = 'delivering'
RETURNING o.event_id, o.claim_version, false;

-- name: outbox_settle
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
)
UPDATE job_outbox_events o SET
    status = a.status, attempt_count = o.attempt_count + a.counts, error = coalesce(a.error, o.error),
    lease_expires_at = NULL, heartbeat_at = NULL,
    run_at = CASE WHEN a.status = 'pending' THEN clock.now + a.delay_ms ELSE o.run_at END,
    worker_id = CASE WHEN a.status = 'pending' THEN NULL ELSE o.worker_id END,
    ended_at = CASE WHEN a.status = 'pending' THEN NULL ELSE clock.now END
FROM unnest($2::text[], $3::integer[], $4::text[], $5::integer[], $6::text[], $7::bigint[])
    AS a (event_id, claim_version, status, counts, error, delay_ms) CROSS JOIN clock
WHERE o.event_id = a.event_id AND o.claim_version = a.claim_version AND o.status = 'delivering'
RETURNING o.event_id, o.claim_version;

-- name: outbox_find
SELECT * FROM job_outbox_events
WHERE ($1::uuid IS NULL OR job_id = $1) AND ($2::text IS NULL OR status = $2)
  AND ($4::text IS NULL OR requester_id = $4) AND ($5::text IS NULL OR endpoint = $5)
  AND ($6::text IS NULL OR event_id = $6) AND ($7::bigint IS NULL OR created_at >= $7)
  AND ($8::bigint IS NULL OR created_at < $8)
  AND ($9::text IS NULL OR seq > (SELECT seq FROM job_outbox_events WHERE event_id = $9))
ORDER BY seq LIMIT $3::bigint;

-- name: outbox_find_newest
SELECT * FROM job_outbox_events
WHERE ($1::uuid IS NULL OR job_id = $1) AND ($2::text IS NULL OR status = $2)
  AND ($4::text IS NULL OR requester_id = $4) AND ($5::text IS NULL OR endpoint = $5)
  AND ($6::text IS NULL OR event_id = $6) AND ($7::bigint IS NULL OR created_at >= $7)
  AND ($8::bigint IS NULL OR created_at < $8)
  AND ($9::text IS NULL OR seq < (SELECT seq FROM job_outbox_events WHERE event_id = $9))
ORDER BY seq DESC LIMIT $3::bigint;

-- name: outbox_replay
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
)
UPDATE job_outbox_events o SET
    status = 'pending', run_at = clock.now + a.delay_ms, attempt_count = 0, worker_id = NULL, ended_at = NULL
FROM unnest($2::text[], $3::bigint[]) AS a (event_id, delay_ms) CROSS JOIN clock
WHERE o.event_id = a.event_id AND o.status IN ('delivered', 'dead_letter')
RETURNING o.event_id;

-- name: pause
INSERT INTO paused_queues VALUES ($1) ON CONFLICT DO NOTHING;

-- name: resume
DELETE FROM paused_queues WHERE queue = $1;

-- name: paused_queues
SELECT queue FROM paused_queues;

-- name: create_document
INSERT INTO documents VALUES ($1, $2, $3, 1) ON CONFLICT DO NOTHING RETURNING version;

-- name: rebase_leases
-- $1 before, $2 after, $3 the tolerance. Forward: those alive before the step that have not beaten since it. Back: those
-- whose last beat has yet to come. The beat moves with the lease, so that the next step knows it, too. In the order of job ids, as settle locks them.
WITH stale AS MATERIALIZED (
    SELECT job_id FROM inbox_jobs
    WHERE status = 'running' AND lease_expires_at IS NOT NULL AND CASE WHEN $2::bigint > $1::bigint
        THEN lease_expires_at >= $1::bigint AND coalesce(heartbeat_at, 0) <= $1::bigint
        ELSE coalesce(heartbeat_at, lease_expires_at) > $2::bigint + $3::bigint END
    ORDER BY job_id FOR NO KEY UPDATE
), moved AS (
    UPDATE inbox_jobs j SET lease_expires_at = j.lease_expires_at + $2::bigint - $1::bigint,
        heartbeat_at = j.heartbeat_at + $2::bigint - $1::bigint FROM stale s
    WHERE j.job_id = s.job_id AND j.status = 'running' RETURNING 1
) SELECT count(*) FROM moved;

-- name: rebase_delayed
-- $3 since. The same for `dependency`: see clock.py.
WITH late AS MATERIALIZED (
    SELECT j.job_id FROM inbox_jobs j
    WHERE j.status = 'queued' AND j.held = 'delay' AND j.run_at > $2::bigint AND j.updated_at >= $3::bigint AND NOT EXISTS (
        SELECT FROM job_checkpoints c WHERE c.job_id = j.job_id AND c.name = '~run_at' AND c.data = j.run_at::text
    )
    ORDER BY j.job_id FOR NO KEY UPDATE OF j
), moved AS (
    UPDATE inbox_jobs j SET run_at = j.run_at + $2::bigint - $1::bigint FROM late l
    WHERE j.job_id = l.job_id AND j.status = 'queued' RETURNING 1
) SELECT count(*) FROM moved;

-- name: rebase_callbacks
WITH moved AS (
    UPDATE job_outbox_events SET run_at = run_at + $2::bigint - $1::bigint WHERE status = 'pending' AND run_at > $2::bigint RETURNING 1
) SELECT count(*) FROM moved;

-- name: rebase_deliveries
WITH moved AS (
    UPDATE job_outbox_events SET lease_expires_at = lease_expires_at + $2::bigint - $1::bigint,
        heartbeat_at = heartbeat_at + $2::bigint - $1::bigint
    WHERE status = 'delivering' AND CASE WHEN $2::bigint > $1::bigint THEN lease_expires_at >= $1::bigint AND coalesce(heartbeat_at, 0) <= $1::bigint
        ELSE coalesce(heartbeat_at, lease_expires_at) > $2::bigint + $3::bigint END
    RETURNING 1
) SELECT count(*) FROM moved;

-- name: change_document
UPDATE documents SET body = $3, version = version + 1 WHERE kind = $1 AND id = $2 AND version = $4 RETURNING version;

-- name: documents
SELECT kind, id, body, version FROM documents WHERE kind = $1 AND ($2::text IS NULL OR id = $2) ORDER BY id;

-- name: delete_document
DELETE FROM documents WHERE kind = $1 AND id = $2 RETURNING 1;

-- name: keep_credentials
-- And the mark that sends the job's end through `settle`, which forgets them.
WITH kept AS (
    INSERT INTO job_credentials
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::integer[])
)
UPDATE inbox_jobs SET has_dependents = true WHERE job_id = ANY ($1::uuid[]);

-- name: credentials
SELECT * FROM job_credentials WHERE job_id = ANY ($1::uuid[]);

-- name: replace_credentials
UPDATE job_credentials c SET
    credential_version = a.credential_version, storage_creds_encrypted = a.encrypted,
    storage_creds_dek_wrapped = a.dek_wrapped, storage_creds_kek_id = a.kek_id,
    storage_creds_encryption_version = a.encryption_version
FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::integer[])
    AS a (job_id, was_version, was_wrapped, credential_version, encrypted, dek_wrapped, kek_id, encryption_version)
WHERE c.job_id = a.job_id AND c.credential_version = a.was_version AND c.storage_creds_dek_wrapped = a.was_wrapped
RETURNING a.job_id, a.was_version, a.was_wrapped;

-- name: credentials_under
SELECT * FROM job_credentials WHERE storage_creds_kek_id = $1 AND ($2::uuid IS NULL OR job_id > $2)
ORDER BY job_id LIMIT $3::bigint;

-- name: credential_keks
SELECT storage_creds_kek_id, count(*) FROM job_credentials GROUP BY storage_creds_kek_id;

-- name: audit_append
-- The rows are numbered in the order of the batch.
INSERT INTO audit_log (at, requester_id, action, actor, target, outcome, address, request_id, details)
SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), a.requester_id, a.action, a.actor,
       a.target, a.outcome, a.address, a.request_id, a.details
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
    WITH ORDINALITY AS a (requester_id, action, actor, target, outcome, address, request_id, details, ord)
ORDER BY a.ord RETURNING at, seq;

-- name: audit_find
SELECT seq, at, action, requester_id, actor, target, outcome, address, request_id, details FROM audit_log
WHERE at >= coalesce($5::bigint, 0) AND at < coalesce($6::bigint, 9223372036854775807)
    AND ($7::bigint IS NULL OR (at, seq) < ($7, $8::bigint)) AND at <= coalesce($7, 9223372036854775807)
    AND ($1::text IS NULL OR requester_id = $1) AND ($2::text IS NULL OR action = $2)
    AND ($3::text IS NULL OR starts_with(action, $3)) AND ($4::text IS NULL OR actor = $4)
ORDER BY at DESC, seq DESC LIMIT $9::bigint;

-- name: audit_find_of_requester
SELECT seq, at, action, requester_id, actor, target, outcome, address, request_id, details FROM audit_log
WHERE requester_id = $1::text AND at >= coalesce($5::bigint, 0) AND at < coalesce($6::bigint, 9223372036854775807)
    AND ($7::bigint IS NULL OR (at, seq) < ($7, $8::bigint)) AND at <= coalesce($7, 9223372036854775807)
    AND ($2::text IS NULL OR action = $2)
    AND ($3::text IS NULL OR starts_with(action, $3)) AND ($4::text IS NULL OR actor = $4)
ORDER BY at DESC, seq DESC LIMIT $9::bigint;

-- name: audit_prune
DELETE FROM audit_log WHERE seq IN (SELECT seq FROM audit_log WHERE at < $1::bigint ORDER BY at, seq LIMIT $2::bigint) RETURNING 1;
