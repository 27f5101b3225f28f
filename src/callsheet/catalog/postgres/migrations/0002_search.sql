-- The index of the search. The same tables are in the SQLite catalogue; what is in them is decided in
-- catalog/search, once for both. Row-level security without a policy: nobody but the service reads words here.

-- Raised by every change, so that a process knows when its list of words is old.
CREATE TABLE search_state (
    only_row integer PRIMARY KEY CHECK (only_row = 1),
    version bigint NOT NULL
);
INSERT INTO search_state (only_row, version) VALUES (1, 0);
ALTER TABLE search_state ENABLE ROW LEVEL SECURITY;

-- Numbers grow with the order of entry and are never used again: a greater one is a newer video.
CREATE TABLE search_videos (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    video_id text COLLATE "C" NOT NULL UNIQUE,
    owner_id text COLLATE "C" NOT NULL,
    team_id text COLLATE "C",
    version bigint NOT NULL DEFAULT 0,
    segments bigint NOT NULL DEFAULT 0,
    facts bytea NOT NULL DEFAULT ''::bytea, -- confidence (f64), t_start, t_end (u32) of each segment, column by column
    row_ids bytea NOT NULL DEFAULT ''::bytea, -- i64: its row of search_materialized
    words text NOT NULL DEFAULT '{}' -- {term: segments that have it}
);
CREATE INDEX search_videos_changed ON search_videos (version);
CREATE INDEX search_videos_by_owner ON search_videos (owner_id);
CREATE INDEX search_videos_by_team ON search_videos (team_id);
-- Read often and all at once: not worth packing and unpacking.
ALTER TABLE search_videos ALTER COLUMN facts SET STORAGE EXTERNAL, ALTER COLUMN row_ids SET STORAGE EXTERNAL;
ALTER TABLE search_videos ENABLE ROW LEVEL SECURITY;

-- u32 each: the segment's number in order of time << 12 | the word's place in it
CREATE TABLE search_postings (
    term text COLLATE "C" NOT NULL,
    video bigint NOT NULL,
    places bytea NOT NULL,
    PRIMARY KEY (term, video)
);
ALTER TABLE search_postings ENABLE ROW LEVEL SECURITY;

-- Segments that have a word, counted apart for each who may see them; '' is no team.
CREATE TABLE search_terms (
    term text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    team_id text COLLATE "C" NOT NULL,
    df bigint NOT NULL,
    PRIMARY KEY (term, owner_id, team_id)
) WITH (fillfactor = 80);
ALTER TABLE search_terms ENABLE ROW LEVEL SECURITY;
