-- What is known of videos. Columns stand in the order of the records' fields; times are milliseconds, JSON is text.
-- Nothing here refers to the engine's tables: the catalogue may be in another file, and has its own version.

CREATE TABLE videos (
    video_id TEXT NOT NULL PRIMARY KEY,
    owner_id TEXT NOT NULL,
    team_id TEXT,
    title TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('uploading', 'queued', 'processing', 'ready', 'failed')),
    s3_original_path TEXT NOT NULL,
    s3_proxy_path TEXT,
    s3_thumb_path TEXT,
    size_bytes INTEGER,
    duration_ms INTEGER,
    width INTEGER,
    height INTEGER,
    fps REAL,
    coverage TEXT NOT NULL DEFAULT '{}',
    options TEXT NOT NULL DEFAULT '{}',
    jobs TEXT NOT NULL DEFAULT '{}',
    error TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    title_folded TEXT NOT NULL, -- found the same way on every database
    writer_job_id TEXT NOT NULL DEFAULT '', -- the fence: the attempt that may write
    writer_claim_version INTEGER NOT NULL DEFAULT 0,
    writer_created_at INTEGER NOT NULL DEFAULT 0,
    search_stale INTEGER NOT NULL DEFAULT 0 CHECK (search_stale IN (0, 1))
) WITHOUT ROWID;

CREATE INDEX videos_newest ON videos (created_at, video_id);
CREATE INDEX videos_of_owner ON videos (owner_id, created_at, video_id);
CREATE INDEX videos_of_team ON videos (team_id, created_at, video_id) WHERE team_id IS NOT NULL;
CREATE INDEX videos_stale ON videos (video_id) WHERE search_stale = 1;

CREATE TABLE segments (
    segment_id TEXT NOT NULL,
    video_id TEXT NOT NULL REFERENCES videos,
    owner_id TEXT NOT NULL,
    team_id TEXT,
    t_start INTEGER NOT NULL CHECK (t_start >= 0),
    t_end INTEGER NOT NULL,
    text TEXT NOT NULL,
    normalized_text TEXT NOT NULL,
    text_hash TEXT NOT NULL,
    confidence REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    bounding_box TEXT NOT NULL,
    language TEXT,
    is_merged INTEGER NOT NULL CHECK (is_merged IN (0, 1)),
    seen INTEGER NOT NULL,
    PRIMARY KEY (video_id, segment_id),
    CHECK (t_end >= t_start)
) WITHOUT ROWID;

CREATE INDEX segments_by_time ON segments (video_id, is_merged, t_start);

CREATE TABLE entities (
    entity_id TEXT NOT NULL,
    segment_id TEXT NOT NULL,
    video_id TEXT NOT NULL REFERENCES videos,
    entity_type TEXT NOT NULL CHECK (entity_type IN ('mention', 'hashtag', 'url', 'emoji', 'number')),
    value TEXT NOT NULL,
    normalized_value TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    team_id TEXT,
    PRIMARY KEY (video_id, entity_id),
    FOREIGN KEY (video_id, segment_id) REFERENCES segments
) WITHOUT ROWID;

CREATE INDEX entities_of_segment ON entities (video_id, segment_id);
CREATE INDEX entities_by_value ON entities (entity_type, normalized_value);

CREATE TABLE clips (
    clip_id TEXT NOT NULL PRIMARY KEY,
    video_id TEXT NOT NULL REFERENCES videos,
    owner_id TEXT NOT NULL,
    team_id TEXT,
    job_id TEXT NOT NULL,
    t_start INTEGER NOT NULL,
    t_end INTEGER NOT NULL,
    padding_ms INTEGER NOT NULL,
    s3_path TEXT NOT NULL,
    actual_start INTEGER,
    actual_end INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    CHECK (t_end > t_start AND t_start >= 0 AND padding_ms >= 0)
) WITHOUT ROWID;

CREATE INDEX clips_of_video ON clips (video_id, created_at, clip_id);
CREATE INDEX clips_expiring ON clips (expires_at, clip_id) WHERE expires_at IS NOT NULL;

-- What is searched: merged segments of videos that were indexed. A changed row is deleted and made anew.
CREATE TABLE search_materialized (
    row_id INTEGER PRIMARY KEY,
    segment_id TEXT NOT NULL,
    video_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    team_id TEXT,
    title TEXT NOT NULL,
    t_start INTEGER NOT NULL,
    t_end INTEGER NOT NULL,
    text TEXT NOT NULL,
    normalized_text TEXT NOT NULL,
    confidence REAL NOT NULL,
    bounding_box TEXT NOT NULL,
    language TEXT,
    UNIQUE (video_id, segment_id)
);

CREATE INDEX search_materialized_by_time ON search_materialized (video_id, t_start);
