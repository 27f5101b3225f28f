-- The index of the search. The same tables are in the PostgreSQL catalogue; what is in them is decided in
-- catalog/search, once for both.

-- Raised by every change, so that a process knows when its list of words is old.
CREATE TABLE search_state (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    version INTEGER NOT NULL
);
INSERT INTO search_state (only_row, version) VALUES (1, 0);

-- Numbers grow with the order of entry and are never used again: a greater one is a newer video.
CREATE TABLE search_videos (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    video_id TEXT NOT NULL UNIQUE,
    owner_id TEXT NOT NULL,
    team_id TEXT,
    version INTEGER NOT NULL DEFAULT 0,
    segments INTEGER NOT NULL DEFAULT 0,
    facts BLOB NOT NULL DEFAULT x'', -- confidence (f64), t_start, t_end (u32) of each segment, column by column
    row_ids BLOB NOT NULL DEFAULT x'', -- i64: its row of search_materialized
    words TEXT NOT NULL DEFAULT '{}' -- {term: segments that have it}
);
CREATE INDEX search_videos_changed ON search_videos (version);
CREATE INDEX search_videos_by_owner ON search_videos (owner_id);
CREATE INDEX search_videos_by_team ON search_videos (team_id);

-- u32 each: the segment's number in order of time << 12 | the word's place in it
CREATE TABLE search_postings (
    term TEXT NOT NULL,
    video INTEGER NOT NULL,
    places BLOB NOT NULL,
    PRIMARY KEY (term, video)
) WITHOUT ROWID;

-- Segments that have a word, counted apart for each who may see them; '' is no team.
CREATE TABLE search_terms (
    term TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    team_id TEXT NOT NULL,
    df INTEGER NOT NULL,
    PRIMARY KEY (term, owner_id, team_id)
) WITHOUT ROWID;
