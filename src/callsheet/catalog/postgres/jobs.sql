-- The contract's view of the engine's jobs, where both are in one database. Runs when it changes, for the engine's tables
-- may come later than the catalogue's, and the engine's own view `jobs` is replaced.

-- name: jobs_view_drop
DROP VIEW IF EXISTS jobs;

-- name: jobs_view
-- `payload` is what the contract asks for when a job failed. `depends_on` is there while the job waits for it. A worker's id
-- ends at its first `~`: what follows is the hash of its lease token. One that works by SQL has `sql:` before its name.
-- A token that names a user shows the jobs that the user asked for and those of the videos that the user may read.
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
               'retry_count', greatest(j.attempt_count - 1, 0))
               || CASE j.status WHEN 'canceled' THEN '{}' ELSE coalesce(p.failure #> '{details,sql}', '{}') END,
           'original_payload', p.body) END AS payload,
       CASE j.status WHEN 'queued' THEN j.attempt_count WHEN 'failed' THEN
                coalesce((p.failure #>> '{details,retry_count}')::integer, greatest(j.attempt_count - 1, 0))
            ELSE greatest(j.attempt_count - 1, 0) END AS retry_count,
       to_timestamp(j.created_at / 1000.0) AS created_at,
       to_timestamp(j.updated_at / 1000.0) AS updated_at,
       CASE j.status WHEN 'running'
            THEN nullif(regexp_replace(split_part(j.worker_id, '~', 1), '^sql:', ''), '') END AS locked_by,
       to_timestamp(j.lease_expires_at / 1000.0) AS locked_until,
       j.priority,
       CASE WHEN j.blocked_by > 0
            THEN (SELECT d.depends_on FROM job_dependencies d WHERE d.job_id = j.job_id ORDER BY 1 LIMIT 1) END AS depends_on,
       to_timestamp(j.run_at / 1000.0) AS run_at,
       replace(j.result, '\u0000', '\ufffd')::jsonb AS result,
       j.claim_version
FROM inbox_jobs j CROSS JOIN LATERAL (
    SELECT replace(j.payload, '\u0000', '\ufffd')::jsonb AS body, replace(j.error, '\u0000', '\ufffd')::jsonb AS failure
) AS p
WHERE j.contract = 'cortana'
    AND j.kind IN ('video.transcode', 'video.sample', 'video.ocr', 'video.segment_index', 'video.clip_generate')
    AND ((SELECT r.owner_id FROM catalog_reader r) IS NULL
        OR j.requester_id = (SELECT r.owner_id FROM catalog_reader r)
        OR p.body ->> 'video_id' IN (
            SELECT v.video_id::text FROM videos v WHERE v.owner_id = (SELECT r.owner_id FROM catalog_reader r)
                OR v.team_id = ANY ((SELECT r.team_ids FROM catalog_reader r)::text[])));

-- name: jobs_payload
-- The payload of a new job, with the contract's defaults for what was left out.
CREATE OR REPLACE FUNCTION jobs_payload(video videos, of_type job_type, body jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('video_id', video.video_id) || CASE of_type
        WHEN 'transcode' THEN jsonb_build_object('s3_original_path', video.s3_original_path)
        WHEN 'sample' THEN jsonb_build_object(
            's3_original_path', video.s3_original_path, 'target_fps', 10, 'dedupe_threshold', 0.95)
        WHEN 'ocr' THEN '{"languages": ["eng"], "min_confidence": 0.6}'
        WHEN 'clip_generate' THEN jsonb_build_object(
            'clip_id', gen_random_uuid(), 'padding_ms', 2000, 's3_original_path', video.s3_original_path)
        ELSE '{}' END || body
$$;

-- name: jobs_enter
-- One new job in the engine's tables, as `enqueue` writes it. The answer is the job's id, or that of the active one of the
-- same pipeline type.
CREATE OR REPLACE FUNCTION jobs_enter(video videos, new_id uuid, of_type job_type, body jsonb, with_priority integer) RETURNS uuid
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    now_ms bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    line bigint := nextval('inbox_jobs_line');
    key text := CASE WHEN of_type <> 'clip_generate' THEN format('video:%s:%s', video.video_id, of_type) END;
    active uuid;
BEGIN
    INSERT INTO inbox_jobs (
        seq, position, job_id, requester_id, contract, kind, queue, priority, run_at, payload, max_attempts, retry,
        created_at, updated_at, event_ms, unique_key, correlation_id)
    VALUES (line, line, new_id, video.owner_id, 'cortana', 'video.' || of_type, 'default', with_priority, now_ms, body::text,
            4, 'cortana', now_ms, now_ms, now_ms, key, video.video_id::text)
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND status IN ('queued', 'running') DO NOTHING;
    IF FOUND THEN
        INSERT INTO job_register VALUES (line, new_id, video.owner_id);
        PERFORM pg_notify('callsheet', json_build_array('sql', json_build_array('default'), json_build_array())::text);
        RETURN new_id;
    END IF;
    SELECT j.job_id INTO active FROM inbox_jobs j WHERE j.unique_key = key AND j.status IN ('queued', 'running');
    RETURN active;
END $$;

-- name: jobs_new_id
-- A UUID of version 7: ids rise with time, as those of the engine do.
CREATE OR REPLACE FUNCTION jobs_new_id(at_ms bigint, seed text) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(at_ms), 12, '0') || '7' || substr(md5(seed), 1, 3) || '8' || substr(md5(seed), 4, 15))::uuid
$$;

-- name: jobs_follower
-- The id of the job that `done` by SQL makes of the next type. It comes from the claim that ended, so that the worker that
-- also inserts that job, as the contract's workers do, can be told from one that would double it.
CREATE OR REPLACE FUNCTION jobs_follower(job inbox_jobs) RETURNS uuid
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT jobs_new_id(job.ended_at, format('%s:%s', job.job_id, job.claim_version))
$$;

-- name: jobs_insert
-- The contract's `create_job` in SQL, for the service role, which may write `jobs` and none of the engine's tables.
CREATE OR REPLACE FUNCTION jobs_create() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    video videos%ROWTYPE;
    body jsonb := coalesce(NEW.payload, '{}');
    entered inbox_jobs%ROWTYPE;
    asked_id uuid := coalesce(NEW.id, jobs_new_id(
        floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, gen_random_uuid()::text));
BEGIN
    SELECT * INTO video FROM videos v WHERE v.video_id = coalesce(NEW.video_id::text, body ->> 'video_id')::uuid;
    IF NOT FOUND THEN
        RAISE foreign_key_violation USING MESSAGE = 'a job is of a video, and there is no such video';
    ELSIF NEW.job_type IS NULL THEN
        RAISE not_null_violation USING MESSAGE = 'a job has a job_type';
    ELSIF NEW.status <> 'queued' OR NEW.locked_by IS NOT NULL OR NEW.locked_until IS NOT NULL OR NEW.retry_count <> 0 THEN
        RAISE check_violation USING MESSAGE = 'a new job is queued, and no worker has it';
    ELSIF jsonb_typeof(body) <> 'object' OR body ->> 'video_id' <> video.video_id::text THEN
        RAISE check_violation USING MESSAGE = 'the payload is an object, and of the same video';
    END IF;
    body := jobs_payload(video, NEW.job_type, body);
    IF octet_length(body::text) > 204800 THEN
        RAISE check_violation USING MESSAGE = 'a payload has at most 200 KB';
    END IF;
    IF NEW.job_type = 'clip_generate' THEN
        IF body ->> 'clip_id' !~ '^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$' THEN
            RAISE check_violation USING MESSAGE = 'a clip_id has letters, digits, - and _';
        END IF;
        INSERT INTO clips (clip_id, video_id, owner_id, team_id, job_id, t_start, t_end, padding_ms, s3_path)
        VALUES (body ->> 'clip_id', video.video_id, video.owner_id, video.team_id, asked_id::text,
                (body ->> 't_start')::bigint, (body ->> 't_end')::bigint, (body ->> 'padding_ms')::bigint,
                format('videos/clips/%s/%s.mp4', video.video_id, body ->> 'clip_id'))
        ON CONFLICT (clip_id) DO UPDATE SET job_id = CASE -- the job that cuts it, or has; later ones find it there
            WHEN EXISTS (SELECT FROM inbox_jobs j WHERE j.job_id::text = clips.job_id
                AND j.status IN ('queued', 'running', 'succeeded')) THEN clips.job_id ELSE EXCLUDED.job_id END
        WHERE clips.video_id = EXCLUDED.video_id;
        IF NOT FOUND THEN
            RAISE unique_violation USING MESSAGE = format('clip_id %s is that of a clip of another video', body ->> 'clip_id');
        END IF;
    ELSE
        UPDATE videos v SET status = 'queued', error = NULL, updated_at = date_trunc('milliseconds', clock_timestamp())
        WHERE v.video_id = video.video_id AND v.status IN ('uploading', 'failed');
    END IF;
    NEW.id := jobs_enter(video, asked_id, NEW.job_type, body, coalesce(NEW.priority, 0));
    IF NEW.id <> asked_id THEN
        IF NOT EXISTS (
            SELECT FROM inbox_jobs b, jsonb_each_text(video.jobs) AS begun (stage, job_id)
            WHERE b.job_id = begun.job_id::uuid AND b.status = 'succeeded'
                AND jobs_follower(b) = NEW.id
        ) THEN
            RAISE unique_violation USING MESSAGE = format(
                'video %s has an active %s job already: %s', video.video_id, NEW.job_type, NEW.id);
        END IF;
        -- `done` made it a moment ago, and its worker makes it too: it is one job, with what the worker knows of it
        UPDATE inbox_jobs j SET payload = body::text, priority = coalesce(NEW.priority, j.priority)
        WHERE j.job_id = NEW.id AND j.status = 'queued' AND j.claim_version = 0;
    END IF;
    IF NEW.depends_on IS NOT NULL THEN
        PERFORM jobs_depend(NEW.id, NEW.depends_on);
    END IF;
    SELECT * INTO entered FROM inbox_jobs j WHERE j.job_id = NEW.id;
    NEW.video_id := video.video_id;
    NEW.payload := entered.payload::jsonb;
    NEW.status := CASE entered.status WHEN 'queued' THEN 'queued' WHEN 'running' THEN 'processing' ELSE 'done' END::job_status;
    NEW.retry_count := 0;
    NEW.priority := entered.priority;
    NEW.created_at := to_timestamp(entered.created_at / 1000.0);
    NEW.updated_at := NEW.created_at;
    NEW.run_at := to_timestamp(entered.run_at / 1000.0);
    NEW.claim_version := entered.claim_version;
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
REVOKE ALL ON FUNCTION jobs_create(), jobs_update(), jobs_enter(videos, uuid, job_type, jsonb, integer),
    jobs_payload(videos, job_type, jsonb), jobs_follower(inbox_jobs), jobs_new_id(bigint, text), jobs_depend(uuid, uuid), jobs_free(uuid, boolean),
    jobs_settle(inbox_jobs, jobs_end), jobs_claim(inbox_jobs, text, timestamptz), jobs_hand_on(inbox_jobs, jsonb),
    jobs_tell_video(inbox_jobs, text, jsonb) FROM PUBLIC, anon, authenticated;
GRANT SELECT, INSERT, UPDATE ON jobs TO service_role; -- UPDATE is also what FOR UPDATE asks for
