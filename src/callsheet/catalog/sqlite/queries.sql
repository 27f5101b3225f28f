-- Statements of the catalogue on SQLite, one block a verb. The last parameters of a reading one are the reader:
-- whether he sees all, his id (an empty one owns nothing), and his teams as a JSON array.

-- name: schema_create
CREATE TABLE IF NOT EXISTS catalog_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL);

-- name: schema_exists
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'catalog_schema';

-- name: schema_version
SELECT coalesce(max(version), 0) FROM catalog_schema;

-- name: schema_note
INSERT INTO catalog_schema VALUES (?1, ?2, ?3);

-- name: taken_names
SELECT name FROM sqlite_master WHERE type IN ('table', 'view')
    AND name IN ('videos', 'segments', 'entities', 'clips', 'search_materialized');

-- name: engine_is_here
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'inbox_jobs';

-- name: jobs_view_is_here
SELECT count(*) FROM sqlite_master WHERE type = 'view' AND name = 'jobs' AND sql LIKE '%contract 002, 2%';

-- name: jobs_view_drop
DROP VIEW IF EXISTS jobs;

-- name: jobs_view
CREATE VIEW jobs AS -- contract 002, 2
SELECT j.job_id AS id, json_extract(j.payload, '$.video_id') AS video_id, substr(j.kind, 7) AS job_type,
       CASE j.status WHEN 'queued' THEN 'queued' WHEN 'running' THEN 'processing' WHEN 'succeeded' THEN 'done'
            ELSE 'failed' END AS status,
       CASE WHEN j.status IN ('queued', 'running', 'succeeded') THEN j.payload ELSE json_object(
           'error', json_object(
               'type', CASE j.status WHEN 'canceled' THEN 'Canceled' ELSE ( -- s3_object_not_found is S3ObjectNotFound
                   SELECT group_concat(upper(substr(w.value, 1, 1)) || substr(w.value, 2), '')
                   FROM json_each('[' || replace(json_quote(json_extract(j.error, '$.code')), '_', '","') || ']') w) END,
               'message', coalesce(CASE j.status WHEN 'canceled' THEN j.cancel_reason END,
                                   json_extract(j.error, '$.message'), ''),
               'timestamp', strftime('%Y-%m-%dT%H:%M:%SZ', j.ended_at / 1000, 'unixepoch'),
               'retry_count', max(j.attempt_count - 1, 0)),
           'original_payload', json(j.payload)) END AS payload,
       CASE j.status WHEN 'queued' THEN j.attempt_count ELSE max(j.attempt_count - 1, 0) END AS retry_count,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.updated_at / 1000.0, 'unixepoch') AS updated_at,
       CASE j.status WHEN 'running' THEN substr(j.worker_id, 1, instr(j.worker_id || '~', '~') - 1) END AS locked_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.lease_expires_at / 1000.0, 'unixepoch') AS locked_until,
       j.priority, CASE WHEN j.blocked_by > 0 THEN (
           SELECT min(d.depends_on) FROM job_dependencies d WHERE d.job_id = j.job_id) END AS depends_on
FROM inbox_jobs j
WHERE j.contract = 'cortana'
    AND j.kind IN ('video.transcode', 'video.sample', 'video.ocr', 'video.segment_index', 'video.clip_generate');

-- name: add_video
INSERT INTO videos (
    video_id, owner_id, team_id, title, status, s3_original_path, s3_proxy_path, s3_thumb_path, size_bytes, duration_ms,
    width, height, fps, coverage, options, jobs, error, created_at, updated_at, title_folded
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
ON CONFLICT (video_id) DO NOTHING RETURNING 1;

-- name: video
SELECT video_id, owner_id, team_id, title, status, s3_original_path, s3_proxy_path, s3_thumb_path, size_bytes, duration_ms,
       width, height, fps, coverage, options, jobs, error, created_at, updated_at
FROM videos
WHERE video_id = ?1 AND (?2 OR (owner_id = ?3 AND ?3 <> '') OR team_id IN (SELECT value FROM json_each(?4)));

-- name: videos_seen_by_all
SELECT video_id, owner_id, team_id, title, status, s3_original_path, s3_proxy_path, s3_thumb_path, size_bytes, duration_ms,
       width, height, fps, coverage, options, jobs, error, created_at, updated_at
FROM videos
WHERE (created_at, video_id) < (?1, ?2) AND (?3 IS NULL OR status = ?3) AND instr(title_folded, ?4) > 0
ORDER BY created_at DESC, video_id DESC LIMIT ?5;

-- name: videos
SELECT video_id, owner_id, team_id, title, status, s3_original_path, s3_proxy_path, s3_thumb_path, size_bytes, duration_ms,
       width, height, fps, coverage, options, jobs, error, created_at, updated_at
FROM videos
WHERE (created_at, video_id) < (?1, ?2) AND (?3 IS NULL OR status = ?3) AND instr(title_folded, ?4) > 0
    AND ((owner_id = ?6 AND ?6 <> '') OR team_id IN (SELECT value FROM json_each(?7)))
ORDER BY created_at DESC, video_id DESC LIMIT ?5;

-- name: known
SELECT video_id FROM videos WHERE video_id IN (SELECT value FROM json_each(?1));

-- name: begin
-- Forward only: another attempt of the same job by its claim, another job by when the store took it, then by its id.
UPDATE videos SET writer_job_id = ?2, writer_claim_version = ?3, writer_created_at = ?4,
    status = CASE status WHEN 'ready' THEN 'ready' ELSE 'processing' END, error = NULL, updated_at = ?5,
    jobs = json_patch(jobs, json_object(?6, ?2))
WHERE video_id = ?1 AND CASE
    WHEN writer_job_id = ?2 THEN writer_claim_version <= ?3
    WHEN writer_created_at > 0 AND ?4 > 0 AND writer_created_at <> ?4 THEN writer_created_at < ?4
    ELSE writer_job_id < ?2 END
RETURNING video_id, owner_id, team_id, title, status, s3_original_path, s3_proxy_path, s3_thumb_path, size_bytes,
          duration_ms, width, height, fps, coverage, options, jobs, error, created_at, updated_at;

-- name: fence
-- Likewise: a later writer need not have begun (its worker died before it could, and somebody tells of its end).
UPDATE videos SET writer_job_id = ?2, writer_claim_version = ?3, writer_created_at = ?4, updated_at = ?5
WHERE video_id = ?1 AND CASE
    WHEN writer_job_id = ?2 THEN writer_claim_version <= ?3
    WHEN writer_created_at > 0 AND ?4 > 0 AND writer_created_at <> ?4 THEN writer_created_at < ?4
    ELSE writer_job_id < ?2 END
RETURNING owner_id, team_id;

-- name: note
UPDATE videos SET s3_proxy_path = coalesce(?2, s3_proxy_path), s3_thumb_path = coalesce(?3, s3_thumb_path),
    size_bytes = coalesce(?4, size_bytes), duration_ms = coalesce(?5, duration_ms), width = coalesce(?6, width),
    height = coalesce(?7, height), fps = coalesce(?8, fps), coverage = coalesce(?9, coverage)
WHERE video_id = ?1;

-- name: fail
UPDATE videos SET status = CASE status WHEN 'ready' THEN 'ready' ELSE 'failed' END, error = ?2 WHERE video_id = ?1;

-- name: queue
UPDATE videos SET status = CASE WHEN status IN ('uploading', 'failed') THEN 'queued' ELSE status END,
    error = CASE WHEN status IN ('uploading', 'failed') THEN NULL ELSE error END,
    size_bytes = coalesce(?2, size_bytes), updated_at = ?3
WHERE video_id = ?1;

-- name: clear_detections
DELETE FROM segments WHERE video_id = ?1 AND is_merged = 0;

-- name: add_segment
INSERT INTO segments (
    segment_id, video_id, owner_id, team_id, t_start, t_end, text, normalized_text, text_hash, confidence, bounding_box,
    language, is_merged, seen
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
ON CONFLICT (video_id, segment_id) DO NOTHING;

-- name: segments_of
SELECT segment_id, video_id, owner_id, team_id, t_start, t_end, text, normalized_text, text_hash, confidence, bounding_box,
       language, is_merged, seen
FROM segments
WHERE video_id = ?1 AND (?2 OR (owner_id = ?3 AND ?3 <> '') OR team_id IN (SELECT value FROM json_each(?4)))
    AND is_merged = (SELECT max(is_merged) FROM segments WHERE video_id = ?1)
ORDER BY t_start, t_end, segment_id;

-- name: detections_of
SELECT segment_id, video_id, owner_id, team_id, t_start, t_end, text, normalized_text, text_hash, confidence, bounding_box,
       language, is_merged, seen
FROM segments
WHERE video_id = ?1 AND is_merged = 0
ORDER BY t_start, t_end, segment_id;

-- name: delete_entities
DELETE FROM entities WHERE video_id = ?1;

-- name: delete_segments
DELETE FROM segments WHERE video_id = ?1;

-- name: add_entity
INSERT INTO entities (entity_id, segment_id, video_id, entity_type, value, normalized_value, owner_id, team_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (video_id, entity_id) DO NOTHING;

-- name: entities_of
SELECT e.entity_id, e.segment_id, e.video_id, e.entity_type, e.value, e.normalized_value, s.t_start, s.t_end
FROM entities e JOIN segments s ON s.video_id = e.video_id AND s.segment_id = e.segment_id
WHERE e.video_id = ?1 AND (?2 OR (e.owner_id = ?3 AND ?3 <> '') OR e.team_id IN (SELECT value FROM json_each(?4)))
ORDER BY s.t_start, s.t_end, e.segment_id, e.entity_id;

-- name: ready
UPDATE videos SET status = 'ready', error = NULL, search_stale = 0 WHERE video_id = ?1;

-- name: stale_videos
SELECT video_id FROM videos WHERE search_stale = 1;

-- name: not_stale
UPDATE videos SET search_stale = 0 WHERE video_id = ?1;

-- name: delete_search
DELETE FROM search_materialized WHERE video_id = ?1;

-- name: fill_search
INSERT INTO search_materialized (
    segment_id, video_id, owner_id, team_id, title, t_start, t_end, text, normalized_text, confidence, bounding_box, language
)
SELECT s.segment_id, s.video_id, s.owner_id, s.team_id, v.title, s.t_start, s.t_end, s.text, s.normalized_text,
       s.confidence, s.bounding_box, s.language
FROM segments s JOIN videos v ON v.video_id = s.video_id
WHERE s.video_id = ?1 AND s.is_merged = 1
ORDER BY s.t_start, s.t_end, s.segment_id;

-- name: delete_clips_of
DELETE FROM clips WHERE video_id = ?1;

-- name: delete_video
DELETE FROM videos WHERE video_id = ?1;

-- name: add_clip
INSERT INTO clips (
    clip_id, video_id, owner_id, team_id, job_id, t_start, t_end, padding_ms, s3_path, actual_start, actual_end, created_at,
    expires_at
)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13 WHERE EXISTS (SELECT 1 FROM videos WHERE video_id = ?2)
ON CONFLICT (clip_id) DO NOTHING;

-- name: clip
SELECT clip_id, video_id, owner_id, team_id, job_id, t_start, t_end, padding_ms, s3_path, actual_start, actual_end,
       created_at, expires_at
FROM clips
WHERE clip_id = ?1 AND (?2 OR (owner_id = ?3 AND ?3 <> '') OR team_id IN (SELECT value FROM json_each(?4)));

-- name: clips_of
SELECT clip_id, video_id, owner_id, team_id, job_id, t_start, t_end, padding_ms, s3_path, actual_start, actual_end,
       created_at, expires_at
FROM clips
WHERE video_id = ?1 AND (?2 OR (owner_id = ?3 AND ?3 <> '') OR team_id IN (SELECT value FROM json_each(?4)))
ORDER BY created_at DESC, clip_id DESC;

-- name: note_clip
UPDATE clips SET actual_start = ?2, actual_end = ?3, expires_at = ?4 WHERE clip_id = ?1;

-- name: expired_clips
SELECT clip_id, video_id, owner_id, team_id, job_id, t_start, t_end, padding_ms, s3_path, actual_start, actual_end,
       created_at, expires_at
FROM clips WHERE expires_at <= ?1 ORDER BY expires_at, clip_id LIMIT ?2;

-- name: delete_clips
DELETE FROM clips WHERE clip_id IN (SELECT value FROM json_each(?1)) RETURNING clip_id;
