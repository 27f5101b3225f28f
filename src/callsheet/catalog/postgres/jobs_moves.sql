-- `UPDATE jobs`: the moves of workers that speak nothing but SQL, as the contract writes them. Each is what the kernel's
-- command of the same name leaves behind, in the caller's transaction: `tests/catalog/test_jobs_moves.py` holds the two
-- equal. Legal moves, delays and limits are the kernel's own tables, put in place of the words after a colon.

-- name: jobs_types
DROP TYPE IF EXISTS jobs_end CASCADE;
CREATE TYPE jobs_end AS (status text, event text, about text, outcome text, result text, error text, delay_ms bigint);

-- name: jobs_depend
-- A queued job waits for another one; one that is done already is not waited for.
CREATE OR REPLACE FUNCTION jobs_depend(child uuid, parent uuid) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    parent_status text;
BEGIN
    UPDATE inbox_jobs j SET has_dependents = true WHERE j.job_id = parent AND j.contract = 'cortana'
    RETURNING j.status INTO parent_status;
    IF NOT FOUND THEN
        RAISE foreign_key_violation USING MESSAGE = format('depends_on: there is no job %s', parent);
    ELSIF parent = child OR EXISTS (
        WITH RECURSIVE before AS (
            SELECT d.depends_on FROM job_dependencies d WHERE d.job_id = parent
            UNION SELECT d.depends_on FROM before b JOIN job_dependencies d ON d.job_id = b.depends_on
        ) SELECT FROM before WHERE depends_on = child
    ) THEN
        RAISE check_violation USING MESSAGE = format('depends_on: job %s would wait for itself', child);
    ELSIF parent_status = 'succeeded' THEN
        RETURN;
    END IF;
    INSERT INTO job_dependencies (depends_on, job_id) VALUES (parent, child) ON CONFLICT DO NOTHING;
    UPDATE inbox_jobs j SET held = 'dependency',
        blocked_by = (SELECT count(*) FROM job_dependencies d WHERE d.job_id = child),
        broken_by = CASE WHEN parent_status NOT IN ('queued', 'running') THEN parent ELSE j.broken_by END
    WHERE j.job_id = child AND j.status = 'queued';
END $$;

-- name: jobs_free
-- What waits for a job that has ended: into the line after a success, canceled by the next sweep after anything else.
CREATE OR REPLACE FUNCTION jobs_free(parent uuid, succeeded boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    child inbox_jobs%ROWTYPE;
    now_ms bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
    FOR child IN
        SELECT j.* FROM job_dependencies d JOIN inbox_jobs j ON j.job_id = d.job_id
        WHERE d.depends_on = parent AND j.status = 'queued' AND j.held = 'dependency' ORDER BY j.job_id FOR UPDATE OF j
    LOOP
        IF NOT succeeded AND child.on_dependency_failure = 'cancel' THEN
            UPDATE inbox_jobs j SET broken_by = coalesce(j.broken_by, parent) WHERE j.job_id = child.job_id;
        ELSE
            DELETE FROM job_dependencies d WHERE d.depends_on = parent AND d.job_id = child.job_id;
            UPDATE inbox_jobs j SET blocked_by = j.blocked_by - 1, position = nextval('inbox_jobs_line'),
                held = CASE WHEN j.blocked_by > 1 THEN 'dependency' WHEN j.run_at > now_ms THEN 'delay'
                    WHEN j.concurrency_key IS NOT NULL THEN 'slot' END
            WHERE j.job_id = child.job_id;
        END IF;
    END LOOP;
END $$;

-- name: jobs_settle
-- What a settlement that takes a job from its claim, or brings an ended one back, leaves behind.
CREATE OR REPLACE FUNCTION jobs_settle(job inbox_jobs, ending jobs_end) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    now_ms bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    at bigint := greatest(now_ms, job.event_ms);
    waits boolean := ending.status = 'queued';
    shown double precision := CASE ending.status WHEN 'succeeded' THEN 100 ELSE job.progress END;
BEGIN
    UPDATE inbox_jobs j SET
        status = ending.status, updated_at = at, progress = shown, stage = CASE WHEN waits THEN '' ELSE j.stage END,
        attempt_started_at = NULL, lease_expires_at = NULL, heartbeat_at = NULL, began_ms = NULL,
        lease_losses = CASE WHEN j.ended_at IS NOT NULL THEN 0 WHEN ending.outcome = 'lease_lost' THEN j.lease_losses + 1
            ELSE j.lease_losses END,
        result = coalesce(ending.result, j.result),
        error = CASE ending.status WHEN 'succeeded' THEN NULL ELSE coalesce(ending.error, j.error) END,
        cancel_requested_at = CASE WHEN j.ended_at IS NULL THEN j.cancel_requested_at END,
        cancel_reason = CASE WHEN j.ended_at IS NULL THEN j.cancel_reason END,
        blocked_by = CASE WHEN j.ended_at IS NULL THEN j.blocked_by ELSE 0 END,
        broken_by = CASE WHEN j.ended_at IS NULL THEN j.broken_by END,
        ended_at = CASE WHEN NOT waits THEN at END,
        worker_id = CASE WHEN NOT waits THEN j.worker_id END,
        run_at = CASE WHEN waits THEN now_ms + ending.delay_ms ELSE j.run_at END,
        position = CASE WHEN waits THEN nextval('inbox_jobs_line') ELSE j.position END,
        held = CASE WHEN NOT waits THEN NULL WHEN ending.delay_ms > 0 THEN 'delay'
            WHEN j.concurrency_key IS NOT NULL THEN 'slot' END,
        event_seq = j.event_seq + 1, event_ms = at
    WHERE j.job_id = job.job_id;
    INSERT INTO job_events
    SELECT job.job_id, job.event_seq, job.began_ms, 'running', job.stage, job.progress, '{}' WHERE job.began_ms IS NOT NULL
    UNION ALL
    SELECT job.job_id, job.event_seq + 1, at, ending.event, CASE WHEN job.ended_at IS NULL THEN job.stage ELSE '' END, shown,
           ending.about;
    IF ending.outcome <> 'succeeded' THEN
        INSERT INTO job_attempts VALUES (job.job_id, job.claim_version, job.attempt_count, job.worker_id,
            coalesce(job.attempt_started_at, at), at, ending.outcome, ending.error);
    END IF;
    IF NOT waits THEN
        DELETE FROM job_credentials c WHERE c.job_id = job.job_id AND ending.status IN ('succeeded', 'canceled');
        PERFORM jobs_free(job.job_id, ending.status = 'succeeded');
    END IF;
    PERFORM pg_notify('callsheet', json_build_array('sql', json_build_array(job.queue), json_build_array(job.job_id))::text);
END $$;

-- name: jobs_claim
-- What a claim that starts its attempt leaves behind. The session remembers it, as far as 100 claims back, so that one that
-- has lost its job to another is told so.
CREATE OR REPLACE FUNCTION jobs_claim(job inbox_jobs, worker text, until timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    now_ms bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    at bigint := greatest(now_ms, job.event_ms);
    mine text[] := string_to_array(coalesce(current_setting('callsheet.claims', true), ''), ',');
BEGIN
    UPDATE inbox_jobs j SET
        status = 'running', held = NULL, worker_id = 'sql:' || coalesce(worker, ''), claim_version = j.claim_version + 1,
        lease_expires_at = floor(extract(epoch FROM until) * 1000)::bigint, heartbeat_at = now_ms, updated_at = at,
        attempt_count = j.attempt_count + 1, attempt_started_at = at, started_at = coalesce(j.started_at, at),
        event_seq = j.event_seq + 1, event_ms = at, began_ms = at
    WHERE j.job_id = job.job_id;
    mine := array_prepend(format('%s:%s', job.job_id, job.claim_version + 1), mine);
    PERFORM set_config('callsheet.claims', array_to_string(mine[1:100], ','), false);
    PERFORM pg_notify('callsheet', json_build_array('sql', json_build_array(), json_build_array(job.job_id))::text);
END $$;

-- name: jobs_hand_on
-- The job of the next type, of the payload, the owner's choices and the result of the one before: what it has keys for.
CREATE OR REPLACE FUNCTION jobs_hand_on(job inbox_jobs, result jsonb) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    of_type job_type := substr(job.kind, 7)::job_type;
    following job_type := (SELECT t FROM unnest(enum_range(of_type, 'segment_index')) WITH ORDINALITY AS o (t, n) WHERE n = 2);
    video videos%ROWTYPE;
    ended inbox_jobs%ROWTYPE;
    known jsonb;
    body jsonb;
BEGIN
    SELECT * INTO video FROM videos v WHERE v.video_id = (job.payload::jsonb ->> 'video_id')::uuid;
    IF NOT FOUND THEN
        RETURN;
    ELSIF of_type = 'clip_generate' THEN
        UPDATE clips c SET expires_at = date_trunc('milliseconds', clock_timestamp()) + interval '30 days',
            actual_start = greatest(0, c.t_start - c.padding_ms),
            actual_end = least(c.t_end + c.padding_ms, coalesce(video.duration_ms, c.t_end + c.padding_ms))
        WHERE c.clip_id = job.payload::jsonb ->> 'clip_id' AND c.video_id = video.video_id;
        RETURN;
    ELSIF following IS NULL THEN
        UPDATE videos v SET status = 'ready', error = NULL, search_stale = true WHERE v.video_id = video.video_id;
        PERFORM refresh_search_materialized(video.video_id);
        RETURN;
    ELSIF of_type = 'ocr' THEN -- what our own last reading counted is not what was read now
        UPDATE videos v SET coverage = v.coverage - 'detections' WHERE v.video_id = video.video_id;
    END IF;
    known := job.payload::jsonb || video.options || result;
    SELECT jsonb_object_agg(k, v) INTO body FROM jsonb_each(
        CASE following WHEN 'ocr' THEN jsonb_build_object('frame_paths', jsonb_build_array(format('frames/%s/', video.video_id)))
            ELSE '{}' END || known) AS e (k, v)
    WHERE k = ANY (CASE following WHEN 'sample' THEN ARRAY['video_id', 's3_original_path', 'target_fps', 'dedupe_threshold']
        WHEN 'ocr' THEN ARRAY['video_id', 'frame_paths', 'languages', 'min_confidence'] ELSE ARRAY['video_id'] END);
    SELECT * INTO ended FROM inbox_jobs j WHERE j.job_id = job.job_id;
    PERFORM jobs_enter(video, jobs_follower(ended), following, jobs_payload(video, following, body), job.priority);
END $$;

-- name: jobs_tell_video
-- The video of a job of the pipeline, as `begin`, `fail` and `queue` of the catalogue leave it; a later job's is left alone.
CREATE OR REPLACE FUNCTION jobs_tell_video(job inbox_jobs, word text, why jsonb) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
    UPDATE videos v SET writer_job_id = job.job_id::text, writer_claim_version = job.claim_version,
        writer_created_at = job.created_at, updated_at = date_trunc('milliseconds', clock_timestamp()),
        jobs = v.jobs || jsonb_build_object(substr(job.kind, 7), job.job_id::text), error = why,
        status = CASE v.status WHEN 'ready' THEN 'ready' ELSE word::video_status END
    WHERE v.video_id = (job.payload::jsonb ->> 'video_id')::uuid AND job.kind <> 'video.clip_generate' AND CASE
        WHEN v.writer_job_id = job.job_id::text THEN v.writer_claim_version <= job.claim_version
        WHEN v.writer_created_at > 0 AND v.writer_created_at <> job.created_at THEN v.writer_created_at < job.created_at
        ELSE v.writer_job_id < job.job_id::text END
$$;

-- name: jobs_update
CREATE OR REPLACE FUNCTION jobs_update() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    job inbox_jobs%ROWTYPE;
    now_ms bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    idle interval := make_interval(secs => coalesce(nullif(current_setting('callsheet.sql_idle_s', true), ''), '3600')::float);
    until timestamptz;
    mine integer; -- the latest claim of this job that this session made
    problem jsonb;
    extra jsonb;
    ending jobs_end;
    other uuid;
    backoff bigint[] := :backoff_ms;
BEGIN
    SELECT * INTO job FROM inbox_jobs j WHERE j.job_id = OLD.id FOR UPDATE;
    IF NOT FOUND OR job.claim_version <> OLD.claim_version OR OLD.status <> (CASE job.status WHEN 'queued' THEN 'queued'
            WHEN 'running' THEN 'processing' WHEN 'succeeded' THEN 'done' ELSE 'failed' END)::job_status THEN
        RETURN NULL; -- it moved while we waited for it: not the row that was asked for
    END IF;
    SELECT split_part(c, ':', 2)::integer INTO mine
    FROM unnest(string_to_array(current_setting('callsheet.claims', true), ',')) AS c
    WHERE split_part(c, ':', 1) = job.job_id::text ORDER BY 1 DESC LIMIT 1;
    IF (NEW.id, NEW.video_id, NEW.job_type, NEW.created_at, NEW.run_at, NEW.claim_version, NEW.result) IS DISTINCT FROM
       (OLD.id, OLD.video_id, OLD.job_type, OLD.created_at, OLD.run_at, OLD.claim_version, OLD.result) THEN
        RAISE check_violation USING MESSAGE = format('job %s: only status, payload, retry_count, locked_by, locked_until, '
            'priority and depends_on can be changed', job.job_id);
    ELSIF NEW.status IS NULL OR NEW.status <> OLD.status AND NOT format('%s>%s', OLD.status, NEW.status) = ANY (:legal_moves) THEN
        RAISE check_violation USING MESSAGE = format('job %s: %s cannot become %s', job.job_id, OLD.status, NEW.status),
            HINT = 'queued > processing > done or failed; failed > queued while retry_count is below 3.';
    ELSIF NEW.retry_count IS NULL OR NEW.retry_count NOT IN (OLD.retry_count, OLD.retry_count + 1) THEN
        RAISE check_violation USING MESSAGE = format('job %s: retry_count grows by one with each retry, and %s does not follow %s',
            job.job_id, NEW.retry_count, OLD.retry_count);
    ELSIF NEW.payload IS DISTINCT FROM OLD.payload AND (OLD.status <> 'processing' OR NEW.status = 'processing') THEN
        RAISE check_violation USING MESSAGE = format('job %s: a payload is changed only with the end of its work', job.job_id),
            HINT = 'Write the error or the result together with the new status.';
    ELSIF NEW.locked_by LIKE '%~%' OR length(NEW.locked_by) > 200 THEN
        RAISE check_violation USING MESSAGE = 'locked_by has at most 200 characters, and no ~';
    ELSIF NEW.locked_until > clock_timestamp() + interval '24 hours' THEN
        RAISE check_violation USING MESSAGE = 'locked_until is at most 24 hours ahead: renew it while the work goes on';
    END IF;

    IF OLD.status = 'processing' AND NEW.status = 'processing' AND job.lease_expires_at < now_ms
            AND (NEW.locked_by IS DISTINCT FROM OLD.locked_by OR mine IS DISTINCT FROM job.claim_version) THEN
        -- The lease is over, and another worker takes the job, as the contract lets it
        IF job.lease_losses + 1 >= :max_lease_losses OR job.attempt_count >= job.max_attempts THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE = format(
                'job %s was lost too often to be tried again: the next sweep marks it failed', job.job_id);
        END IF;
        problem := jsonb_build_object('code', 'worker_lost', 'message', format(
            'worker %s went silent and its lease ran out (%s)', split_part(job.worker_id, '~', 1), job.lease_losses + 1));
        PERFORM jobs_settle(job, ('queued', 'lease_lost', problem::text, 'lease_lost', NULL, problem::text, 0)::jobs_end);
        SELECT * INTO job FROM inbox_jobs j WHERE j.job_id = OLD.id;
        OLD.status := 'queued';
    ELSIF OLD.status = 'processing' THEN
        IF job.worker_id NOT LIKE 'sql:%' OR job.worker_id LIKE '%~%' OR mine < job.claim_version
                OR NEW.locked_by <> OLD.locked_by THEN
            RAISE object_in_use USING MESSAGE = format('job %s is claimed by %s until %s', job.job_id,
                    coalesce(OLD.locked_by, 'another worker'), OLD.locked_until),
                HINT = 'This claim was lost, or never held: select another job. Claims may be taken when locked_until is over.';
        END IF;
    END IF;

    until := CASE WHEN NEW.locked_until IS DISTINCT FROM OLD.locked_until AND NEW.locked_until IS NOT NULL
        THEN NEW.locked_until ELSE clock_timestamp() + idle END;
    CASE format('%s>%s', OLD.status, NEW.status)
    WHEN 'queued>processing' THEN
        IF job.held = 'dependency' THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE = format(
                'job %s waits for job %s, which is not done', job.job_id, OLD.depends_on);
        ELSIF job.attempt_count >= job.max_attempts THEN
            RAISE check_violation USING MESSAGE = format('job %s has no retries left', job.job_id);
        END IF;
        PERFORM jobs_claim(job, nullif(NEW.locked_by, ''), until);
        SELECT * INTO job FROM inbox_jobs j WHERE j.job_id = OLD.id;
        PERFORM jobs_tell_video(job, 'processing', NULL);
    WHEN 'processing>processing' THEN
        IF NEW.locked_by IS NULL AND OLD.locked_by IS NOT NULL THEN
            RAISE check_violation USING MESSAGE = format('job %s: locked_by stays while the work goes on', job.job_id);
        END IF;
        UPDATE inbox_jobs j SET heartbeat_at = now_ms, lease_expires_at = floor(extract(epoch FROM until) * 1000)::bigint,
            worker_id = 'sql:' || coalesce(NEW.locked_by, '') WHERE j.job_id = job.job_id;
    WHEN 'processing>done' THEN
        SELECT coalesce(jsonb_object_agg(e.key, e.value), '{}') INTO extra
        FROM jsonb_each(CASE jsonb_typeof(NEW.payload) WHEN 'object' THEN NEW.payload ELSE '{}' END) AS e
        WHERE OLD.payload -> e.key IS DISTINCT FROM e.value;
        ending := ('succeeded', 'done', '{}', 'succeeded', CASE WHEN extra = '{}' THEN 'null' ELSE extra::text END, NULL, 0);
        PERFORM jobs_settle(job, ending);
        PERFORM jobs_hand_on(job, extra);
    WHEN 'processing>failed', 'processing>queued' THEN
        problem := CASE jsonb_typeof(NEW.payload -> 'error') WHEN 'object' THEN NEW.payload -> 'error' ELSE '{}' END;
        extra := jsonb_build_object('sql', problem)
            || CASE WHEN NEW.retry_count > OLD.retry_count THEN jsonb_build_object('retry_count', NEW.retry_count) ELSE '{}' END;
        problem := jsonb_build_object('code', coalesce(nullif(left(problem ->> 'type', 100), ''), 'failed'), 'message',
            coalesce(left(problem ->> 'message', 4000), ''), 'retryable', NEW.status = 'queued', 'details', extra);
        IF NEW.status = 'failed' THEN
            PERFORM jobs_settle(job, ('failed', 'error', problem::text, 'failed', NULL, problem::text, 0)::jobs_end);
            PERFORM jobs_tell_video(job, 'failed', jsonb_build_object('type', problem ->> 'code', 'message',
                problem ->> 'message', 'stage', job.kind, 'job_id', job.job_id));
        ELSIF job.attempt_count >= job.max_attempts THEN
            RAISE check_violation USING MESSAGE = format('job %s has no retries left: mark it failed', job.job_id);
        ELSIF job.cancel_requested_at IS NOT NULL THEN
            PERFORM jobs_settle(job, ('canceled', 'canceled', jsonb_build_object('reason', coalesce(job.cancel_reason, ''))::text,
                'canceled', NULL, NULL, 0)::jobs_end);
        ELSE
            PERFORM jobs_settle(job, ('queued', 'retrying', problem::text, 'retried', NULL, problem::text,
                (backoff[least(job.attempt_count, cardinality(backoff))] * (:jitter_low + :jitter_width * random()))::bigint
                )::jobs_end);
        END IF;
    WHEN 'failed>queued' THEN
        IF job.attempt_count >= job.max_attempts OR OLD.retry_count >= :max_retries THEN
            RAISE check_violation USING MESSAGE = format('job %s has no retries left: retry_count is %s of :max_retries', job.job_id,
                OLD.retry_count), HINT = 'An administrator can try it again: POST /pipeline/jobs/{job_id}/retry.';
        END IF;
        SELECT j.job_id INTO other FROM inbox_jobs j WHERE j.unique_key = job.unique_key AND j.status IN ('queued', 'running');
        IF FOUND THEN
            RAISE unique_violation USING MESSAGE = format(
                'video %s has an active %s job already: %s', OLD.video_id, OLD.job_type, other);
        END IF;
        PERFORM jobs_settle(job, ('queued', 'requeued', '{}', NULL, NULL, NULL,
            (backoff[least(greatest(job.attempt_count, 1), cardinality(backoff))]
                * (:jitter_low + :jitter_width * random()))::bigint)::jobs_end);
        UPDATE videos v SET status = 'queued', error = NULL, updated_at = date_trunc('milliseconds', clock_timestamp())
        WHERE v.video_id = OLD.video_id AND v.status = 'failed';
    ELSE -- the status stays
        IF (NEW.locked_by, NEW.locked_until) IS DISTINCT FROM (OLD.locked_by, OLD.locked_until) THEN
            RAISE check_violation USING MESSAGE = format('job %s is %s: locked_by and locked_until come with processing',
                job.job_id, OLD.status);
        ELSIF OLD.status <> 'queued' AND (NEW.priority, NEW.depends_on) IS DISTINCT FROM (OLD.priority, OLD.depends_on)
                OR mine < job.claim_version THEN
            RAISE check_violation USING MESSAGE = format('job %s is %s, and stays as it is', job.job_id, OLD.status);
        END IF;
    END CASE;

    IF NEW.status IN ('queued', 'processing') AND NEW.priority IS DISTINCT FROM OLD.priority THEN
        UPDATE inbox_jobs j SET priority = coalesce(NEW.priority, 0) WHERE j.job_id = job.job_id;
    END IF;
    IF NEW.depends_on IS DISTINCT FROM OLD.depends_on THEN
        IF NEW.status <> 'queued' OR OLD.status <> 'queued' THEN
            RAISE check_violation USING MESSAGE = format('job %s: depends_on can be changed while it is queued', job.job_id);
        END IF;
        DELETE FROM job_dependencies d WHERE d.job_id = job.job_id;
        UPDATE inbox_jobs j SET blocked_by = 0, broken_by = NULL, position = nextval('inbox_jobs_line'),
            held = CASE WHEN j.run_at > now_ms THEN 'delay' END
        WHERE j.job_id = job.job_id AND j.held = 'dependency';
        IF NEW.depends_on IS NOT NULL THEN
            PERFORM jobs_depend(job.job_id, NEW.depends_on);
        END IF;
    END IF;
    SELECT * INTO NEW FROM jobs s WHERE s.id = OLD.id;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION jobs_update() FROM PUBLIC;
CREATE TRIGGER jobs_update INSTEAD OF UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION jobs_update();
