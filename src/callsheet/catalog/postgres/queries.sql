-- Statements of the catalogue on PostgreSQL, one block a verb. The last parameters of a reading one are the reader:
-- whether he sees all, his id (an empty one owns nothing), and his teams. Times of the clock are whole milliseconds.

-- name: schema_lock
SELECT pg_advisory_xact_lock(4983204717);

-- name: schema_exists
SELECT to_regclass('catalog_schema') IS NOT NULL;

-- name: schema_create
CREATE TABLE IF NOT EXISTS catalog_schema (version int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS catalog_steps (name text PRIMARY KEY, digest text NOT NULL);
ALTER TABLE catalog_schema ENABLE ROW LEVEL SECURITY;
ALTER TABLE catalog_steps ENABLE ROW LEVEL SECURITY;

-- name: schema_version
SELECT coalesce(max(version), 0) FROM catalog_schema;

-- name: schema_note
INSERT INTO catalog_schema (version, name, applied_at) VALUES ($1, $2, clock_timestamp());

-- name: step_digest
SELECT digest FROM catalog_steps WHERE name = $1;

-- name: step_note
INSERT INTO catalog_steps VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET digest = excluded.digest;

-- name: taken_names
SELECT relname::text FROM pg_class
WHERE relnamespace = current_schema()::regnamespace
    AND relname IN ('videos', 'segments', 'entities', 'clips', 'search_materialized', 'catalog_reader')
UNION
SELECT typname::text FROM pg_type
WHERE typnamespace = current_schema()::regnamespace
    AND typname IN ('job_type', 'job_status', 'entity_type', 'video_status')
ORDER BY 1;

-- name: engine_is_here
SELECT to_regclass('inbox_jobs') IS NOT NULL;

-- name: jobs_view_is_here
SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('jobs') AND attname = 'video_id');

-- name: sees_all
-- Whether this user can do the catalogue's work: he owns the tables or passes by their policies, or is a worker by role.
SELECT NOT row_security_active('catalog_schema')
    OR EXISTS (SELECT FROM pg_roles WHERE rolname = 'service_role' AND pg_has_role(oid, 'USAGE')), current_user::text;

-- name: plan_freely
-- For transactions behind a pooler, where no session settings last.
SET LOCAL jit = off;

-- name: add_video
INSERT INTO videos (
    video_id, owner_id, team_id, title, status, s3_original_path, s3_proxy_path, s3_thumb_path, size_bytes, duration_ms,
    width, height, fps, coverage, options, jobs, error, created_at, updated_at, title_folded
)
SELECT $1::uuid, $2::text, $3::text, $4::text, $5::video_status, $6::text, $7::text, $8::text, $9::bigint, $10::bigint,
       $11::integer, $12::integer, $13::double precision, $14::jsonb, $15::jsonb, $16::jsonb, $17::jsonb,
       coalesce(to_timestamp(nullif($18::bigint, 0) / 1000.0), now),
       coalesce(to_timestamp(nullif($19::bigint, 0) / 1000.0), to_timestamp(nullif($18, 0) / 1000.0), now), $20::text
FROM date_trunc('milliseconds', clock_timestamp()) AS now
ON CONFLICT (video_id) DO NOTHING RETURNING 1;

-- name: video
SELECT video_id, owner_id, team_id, title, status, s3_original_path, s3_proxy_path, s3_thumb_path, size_bytes, duration_ms,
       width, height, fps, coverage, options, jobs, error, (extract(epoch FROM created_at) * 1000)::bigint,
       (extract(epoch FROM updated_at) * 1000)::bigint
FROM videos
WHERE video_id = $1 AND ($2::boolean OR (owner_id = $3::text AND $3::text <> '') OR team_id = ANY ($4::text[]));

-- name: videos_seen_by_all
SELECT video_id, owner_id, team_id, title, status, s3_original_path, s3_proxy_path, s3_thumb_path, size_bytes, duration_ms,
       width, height, fps, coverage, options, jobs, error, (extract(epoch FROM created_at) * 1000)::bigint,
       (extract(epoch FROM updated_at) * 1000)::bigint
FROM videos
WHERE (created_at, video_id) < (coalesce(to_timestamp($1::bigint / 1000.0), 'infinity'), $2::uuid)
    AND ($3::video_status IS NULL OR status = $3) AND strpos(title_folded, $4::text) > 0
ORDER BY videos.created_at DESC, videos.video_id DESC LIMIT $5;

-- name: videos
SELECT video_id, owner_id, team_id, title, status, s3_original_path, s3_proxy_path, s3_thumb_path, size_bytes, duration_ms,
       width, height, fps, coverage, options, jobs, error, (extract(epoch FROM created_at) * 1000)::bigint,
       (extract(epoch FROM updated_at) * 1000)::bigint
FROM videos
WHERE (created_at, video_id) < (coalesce(to_timestamp($1::bigint / 1000.0), 'infinity'), $2::uuid)
    AND ($3::video_status IS NULL OR status = $3) AND strpos(title_folded, $4::text) > 0
    AND ((owner_id = $6::text AND $6::text <> '') OR team_id = ANY ($7::text[]))
ORDER BY videos.created_at DESC, videos.video_id DESC LIMIT $5;

-- name: known
SELECT video_id FROM videos WHERE video_id = ANY ($1::uuid[]);

-- name: begin
-- Forward only: another attempt of the same job by its claim, another job by when the store took it, then by its id.
UPDATE videos SET writer_job_id = $2::text, writer_claim_version = $3, writer_created_at = $4,
    status = CASE status WHEN 'ready' THEN 'ready'::video_status ELSE 'processing'::video_status END, error = NULL,
    updated_at = date_trunc('milliseconds', clock_timestamp()), jobs = jobs || jsonb_build_object($5::text, $2::text)
WHERE video_id = $1 AND CASE
    WHEN writer_job_id = $2 THEN writer_claim_version <= $3
    WHEN writer_created_at > 0 AND $4::bigint > 0 AND writer_created_at <> $4 THEN writer_created_at < $4
    ELSE writer_job_id < $2 END
RETURNING video_id, owner_id, team_id, title, status, s3_original_path, s3_proxy_path, s3_thumb_path, size_bytes,
          duration_ms, width, height, fps, coverage, options, jobs, error, (extract(epoch FROM created_at) * 1000)::bigint,
          (extract(epoch FROM updated_at) * 1000)::bigint;

-- name: fence
-- Likewise: a later writer need not have begun (its worker died before it could, and somebody tells of its end).
UPDATE videos SET writer_job_id = $2, writer_claim_version = $3, writer_created_at = $4,
    updated_at = date_trunc('milliseconds', clock_timestamp())
WHERE video_id = $1 AND CASE
    WHEN writer_job_id = $2 THEN writer_claim_version <= $3
    WHEN writer_created_at > 0 AND $4::bigint > 0 AND writer_created_at <> $4 THEN writer_created_at < $4
    ELSE writer_job_id < $2 END
RETURNING owner_id, team_id;

-- name: note
UPDATE videos SET s3_proxy_path = coalesce($2, s3_proxy_path), s3_thumb_path = coalesce($3, s3_thumb_path),
    size_bytes = coalesce($4, size_bytes), duration_ms = coalesce($5, duration_ms), width = coalesce($6, width),
    height = coalesce($7, height), fps = coalesce($8, fps), coverage = coalesce($9::jsonb, coverage)
WHERE video_id = $1;

-- name: fail
UPDATE videos SET status = CASE status WHEN 'ready' THEN 'ready'::video_status ELSE 'failed'::video_status END,
    error = $2::jsonb
WHERE video_id = $1;

-- name: queue
UPDATE videos SET status = CASE WHEN status IN ('uploading', 'failed') THEN 'queued' ELSE status END,
    error = CASE WHEN status IN ('uploading', 'failed') THEN NULL ELSE error END,
    size_bytes = coalesce($2, size_bytes), updated_at = date_trunc('milliseconds', clock_timestamp())
WHERE video_id = $1;

-- name: clear_detections
DELETE FROM segments WHERE video_id = $1 AND NOT is_merged;

-- name: add_segments
INSERT INTO segments (
    segment_id, video_id, owner_id, team_id, t_start, t_end, text, normalized_text, text_hash, confidence, bounding_box,
    language, is_merged, seen
)
SELECT a.segment_id, $1::uuid, $2::text, $3::text, a.t_start, a.t_end, a.text, a.normalized_text, a.text_hash, a.confidence,
       a.bounding_box::jsonb, a.language, a.is_merged, a.seen
FROM unnest(
    $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::double precision[], $11::text[],
    $12::text[], $13::boolean[], $14::integer[]
) AS a (segment_id, t_start, t_end, text, normalized_text, text_hash, confidence, bounding_box, language, is_merged, seen)
ON CONFLICT (video_id, segment_id) DO NOTHING;

-- name: add_entities
INSERT INTO entities (entity_id, segment_id, video_id, entity_type, value, normalized_value, owner_id, team_id)
SELECT a.entity_id, a.segment_id, $1::uuid, a.entity_type::entity_type, a.value, a.normalized_value, $2::text, $3::text
FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
    AS a (entity_id, segment_id, entity_type, value, normalized_value)
ON CONFLICT (video_id, entity_id) DO NOTHING;

-- name: segments_of
SELECT segment_id, video_id, owner_id, team_id, t_start, t_end, text, normalized_text, text_hash, confidence, bounding_box,
       language, is_merged, seen
FROM segments
WHERE video_id = $1 AND ($2::boolean OR (owner_id = $3::text AND $3::text <> '') OR team_id = ANY ($4::text[]))
    AND is_merged = (SELECT bool_or(s.is_merged) FROM segments s WHERE s.video_id = $1)
ORDER BY t_start, t_end, segment_id;

-- name: detections_of
SELECT segment_id, video_id, owner_id, team_id, t_start, t_end, text, normalized_text, text_hash, confidence, bounding_box,
       language, is_merged, seen
FROM segments
WHERE video_id = $1 AND NOT is_merged
ORDER BY t_start, t_end, segment_id;

-- name: delete_entities
DELETE FROM entities WHERE video_id = $1;

-- name: delete_segments
DELETE FROM segments WHERE video_id = $1;

-- name: entities_of
SELECT e.entity_id, e.segment_id, e.video_id, e.entity_type, e.value, e.normalized_value, s.t_start, s.t_end
FROM entities e JOIN segments s ON s.video_id = e.video_id AND s.segment_id = e.segment_id
WHERE e.video_id = $1 AND ($2::boolean OR (e.owner_id = $3::text AND $3::text <> '') OR e.team_id = ANY ($4::text[]))
ORDER BY s.t_start, s.t_end, e.segment_id, e.entity_id;

-- name: ready
UPDATE videos SET status = 'ready', error = NULL, search_stale = true WHERE video_id = $1;

-- name: refresh_all
SELECT refresh_search_materialized();

-- name: refresh_one
SELECT refresh_search_materialized($1);

-- name: next_unindexed
SELECT video_id FROM videos WHERE search_unindexed ORDER BY video_id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: is_unindexed
SELECT EXISTS (SELECT FROM videos WHERE search_unindexed);

-- name: indexed
UPDATE videos SET search_unindexed = false WHERE video_id = $1;

-- name: delete_search
DELETE FROM search_materialized WHERE video_id = $1;

-- name: lock_video
SELECT video_id FROM videos WHERE video_id = $1 FOR UPDATE;

-- name: delete_video
DELETE FROM videos WHERE video_id = $1;

-- name: add_clip
INSERT INTO clips (
    clip_id, video_id, owner_id, team_id, job_id, t_start, t_end, padding_ms, s3_path, actual_start, actual_end, created_at,
    expires_at
)
SELECT $1::text, v.video_id, $3::text, $4::text, $5::text, $6::bigint, $7::bigint, $8::bigint, $9::text, $10::bigint,
       $11::bigint, coalesce(to_timestamp(nullif($12::bigint, 0) / 1000.0), date_trunc('milliseconds', clock_timestamp())),
       to_timestamp($13::bigint / 1000.0)
FROM videos v WHERE v.video_id = $2::uuid
ON CONFLICT (clip_id) DO NOTHING;

-- name: clip
SELECT clip_id, video_id, owner_id, team_id, job_id, t_start, t_end, padding_ms, s3_path, actual_start, actual_end,
       (extract(epoch FROM created_at) * 1000)::bigint, (extract(epoch FROM expires_at) * 1000)::bigint
FROM clips
WHERE clip_id = $1 AND ($2::boolean OR (owner_id = $3::text AND $3::text <> '') OR team_id = ANY ($4::text[]));

-- name: clips_of
SELECT clip_id, video_id, owner_id, team_id, job_id, t_start, t_end, padding_ms, s3_path, actual_start, actual_end,
       (extract(epoch FROM created_at) * 1000)::bigint, (extract(epoch FROM expires_at) * 1000)::bigint
FROM clips
WHERE video_id = $1 AND ($2::boolean OR (owner_id = $3::text AND $3::text <> '') OR team_id = ANY ($4::text[]))
ORDER BY clips.created_at DESC, clip_id DESC;

-- name: note_clip
UPDATE clips SET actual_start = $2, actual_end = $3, expires_at = to_timestamp($4::bigint / 1000.0) WHERE clip_id = $1;

-- name: expired_clips
SELECT clip_id, video_id, owner_id, team_id, job_id, t_start, t_end, padding_ms, s3_path, actual_start, actual_end,
       (extract(epoch FROM created_at) * 1000)::bigint, (extract(epoch FROM expires_at) * 1000)::bigint
FROM clips WHERE expires_at <= to_timestamp($1::bigint / 1000.0) ORDER BY clips.expires_at, clip_id LIMIT $2;

-- name: delete_clips
DELETE FROM clips WHERE clip_id = ANY ($1::text[]) RETURNING clip_id;
