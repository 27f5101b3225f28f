-- The contract's view of the engine's jobs, where both are in one database. Runs when it changes, for the engine's tables
-- may come later than the catalogue's, and the engine's own view `jobs` is replaced.

-- name: jobs_view_drop
DROP VIEW IF EXISTS jobs;

-- name: jobs_view
-- `payload` is what the contract asks for when a job failed. `depends_on` is there while the job waits for it. A worker's id
-- ends at its first `~`: what follows is the hash of its lease token.
CREATE VIEW jobs AS
SELECT j.job_id AS id,
       CASE WHEN p.body ->> 'video_id' ~ '^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$'
            THEN (p.body ->> 'video_id')::uuid END AS video_id,
       CASE j.kind WHEN 'video.transcode' THEN 'transcode'::job_type WHEN 'video.sample' THEN 'sample'::job_type
            WHEN 'video.ocr' THEN 'ocr'::job_type WHEN 'video.segment_index' THEN 'segment_index'::job_type
            WHEN 'video.clip_generate' THEN 'clip_generate'::job_type END AS job_type,
       CASE j.status WHEN 'queued' THEN 'queued'::job_status WHEN 'running' THEN 'processing'::job_status
            WHEN 'succeeded' THEN 'done'::job_status ELSE 'failed'::job_status END AS status,
       CASE WHEN j.status IN ('queued', 'running', 'succeeded') THEN p.body ELSE jsonb_build_object(
           'error', jsonb_build_object(
               'type', CASE j.status WHEN 'canceled' THEN 'Canceled' ELSE ( -- s3_object_not_found is S3ObjectNotFound
                   SELECT string_agg(upper(left(w.part, 1)) || substr(w.part, 2), '' ORDER BY w.n)
                   FROM unnest(string_to_array(p.failure ->> 'code', '_')) WITH ORDINALITY AS w (part, n)) END,
               'message', coalesce(CASE j.status WHEN 'canceled' THEN j.cancel_reason END, p.failure ->> 'message', ''),
               'timestamp', to_char(to_timestamp(j.ended_at / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
               'retry_count', greatest(j.attempt_count - 1, 0)),
           'original_payload', p.body) END AS payload,
       CASE j.status WHEN 'queued' THEN j.attempt_count ELSE greatest(j.attempt_count - 1, 0) END AS retry_count,
       to_timestamp(j.created_at / 1000.0) AS created_at,
       to_timestamp(j.updated_at / 1000.0) AS updated_at,
       CASE j.status WHEN 'running' THEN split_part(j.worker_id, '~', 1) END AS locked_by,
       to_timestamp(j.lease_expires_at / 1000.0) AS locked_until,
       j.priority,
       CASE WHEN j.blocked_by > 0
            THEN (SELECT d.depends_on FROM job_dependencies d WHERE d.job_id = j.job_id ORDER BY 1 LIMIT 1) END AS depends_on
FROM inbox_jobs j CROSS JOIN LATERAL (
    SELECT replace(j.payload, '\u0000', '\ufffd')::jsonb AS body, replace(j.error, '\u0000', '\ufffd')::jsonb AS failure
) AS p
WHERE j.contract = 'cortana'
    AND j.kind IN ('video.transcode', 'video.sample', 'video.ocr', 'video.segment_index', 'video.clip_generate');

-- name: jobs_access
-- A new Supabase project gives `anon` all rights on new tables of `public`, and the engine's tables are nobody's but its own.
REVOKE ALL ON callsheet_schema, inbox_jobs, job_register, job_events, job_history, job_attempts, job_attempts_all,
    job_checkpoints, job_dependencies, job_outbox_events, job_credentials, job_leases, idempotency_keys,
    concurrency_limits, paused_queues, documents, jobs FROM PUBLIC, anon, authenticated;
REVOKE ALL ON SEQUENCE inbox_jobs_line FROM PUBLIC, anon, authenticated;
GRANT SELECT ON jobs TO service_role;
