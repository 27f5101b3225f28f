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

-- name: jobs_insert
-- The contract's `create_job` in SQL, for the service role, which may write `jobs` and none of the engine's tables. What a
-- payload leaves out is the contract's default. A job moves by its worker's claim alone: nobody updates the view.
CREATE OR REPLACE FUNCTION jobs_create() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    video videos%ROWTYPE;
    now_ms bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    line bigint := nextval('inbox_jobs_line');
    body jsonb := coalesce(NEW.payload, '{}');
BEGIN
    SELECT * INTO video FROM videos v WHERE v.video_id = coalesce(NEW.video_id::text, body ->> 'video_id')::uuid;
    IF NOT FOUND THEN
        RAISE foreign_key_violation USING MESSAGE = 'a job is of a video, and there is no such video';
    ELSIF NEW.job_type IS NULL THEN
        RAISE not_null_violation USING MESSAGE = 'a job has a job_type';
    ELSIF NEW.status <> 'queued' OR NEW.locked_by IS NOT NULL OR NEW.depends_on IS NOT NULL THEN
        RAISE check_violation USING MESSAGE = 'a new job is queued, and waits for nobody';
    ELSIF jsonb_typeof(body) <> 'object' OR body ->> 'video_id' <> video.video_id::text THEN
        RAISE check_violation USING MESSAGE = 'the payload is an object, and of the same video';
    END IF;
    body := jsonb_build_object('video_id', video.video_id) || CASE NEW.job_type
        WHEN 'transcode' THEN jsonb_build_object('s3_original_path', video.s3_original_path)
        WHEN 'sample' THEN jsonb_build_object(
            's3_original_path', video.s3_original_path, 'target_fps', 10, 'dedupe_threshold', 0.95)
        WHEN 'ocr' THEN '{"languages": ["eng"], "min_confidence": 0.6}'
        WHEN 'clip_generate' THEN jsonb_build_object(
            'clip_id', gen_random_uuid(), 'padding_ms', 2000, 's3_original_path', video.s3_original_path)
        ELSE '{}' END || body;
    IF octet_length(body::text) > 204800 THEN
        RAISE check_violation USING MESSAGE = 'a payload has at most 200 KB';
    END IF;
    NEW.id := coalesce(NEW.id, gen_random_uuid());
    IF NEW.job_type = 'clip_generate' THEN
        IF body ->> 'clip_id' !~ '^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$' THEN
            RAISE check_violation USING MESSAGE = 'a clip_id has letters, digits, - and _';
        END IF;
        INSERT INTO clips (clip_id, video_id, owner_id, team_id, job_id, t_start, t_end, padding_ms, s3_path)
        VALUES (body ->> 'clip_id', video.video_id, video.owner_id, video.team_id, NEW.id::text,
                (body ->> 't_start')::bigint, (body ->> 't_end')::bigint, (body ->> 'padding_ms')::bigint,
                format('videos/clips/%s/%s.mp4', video.video_id, body ->> 'clip_id'));
    ELSE
        UPDATE videos v SET status = 'queued', error = NULL, updated_at = date_trunc('milliseconds', clock_timestamp())
        WHERE v.video_id = video.video_id AND v.status IN ('uploading', 'failed');
    END IF;
    INSERT INTO inbox_jobs (
        seq, position, job_id, requester_id, contract, kind, queue, priority, run_at, payload, max_attempts, retry,
        created_at, updated_at, event_ms, unique_key, correlation_id)
    VALUES (line, line, NEW.id, video.owner_id, 'cortana', 'video.' || NEW.job_type, 'default', coalesce(NEW.priority, 0),
            now_ms, body::text, 4, 'cortana', now_ms, now_ms, now_ms,
            CASE WHEN NEW.job_type <> 'clip_generate' THEN format('video:%s:%s', video.video_id, NEW.job_type) END,
            video.video_id::text);
    INSERT INTO job_register VALUES (line, NEW.id, video.owner_id);
    NEW.video_id := video.video_id;
    NEW.payload := body;
    NEW.status := 'queued';
    NEW.retry_count := 0;
    NEW.priority := coalesce(NEW.priority, 0);
    NEW.created_at := to_timestamp(now_ms / 1000.0);
    NEW.updated_at := NEW.created_at;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION jobs_create() FROM PUBLIC; -- nobody hangs it on a table of his own
CREATE TRIGGER jobs_create INSTEAD OF INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION jobs_create();

-- name: jobs_access
-- A new Supabase project gives `anon` all rights on new tables of `public`, and the engine's tables are nobody's but its own.
REVOKE ALL ON callsheet_schema, inbox_jobs, job_register, job_events, job_history, job_attempts, job_attempts_all,
    job_checkpoints, job_dependencies, job_outbox_events, job_credentials, job_leases, idempotency_keys,
    concurrency_limits, paused_queues, documents, jobs FROM PUBLIC, anon, authenticated;
REVOKE ALL ON SEQUENCE inbox_jobs_line FROM PUBLIC, anon, authenticated;
REVOKE ALL ON FUNCTION jobs_create() FROM anon, authenticated;
GRANT SELECT, INSERT ON jobs TO service_role;
