-- The search's queries on PostgreSQL. Each has its equal of the same name in ../sqlite. Many rows arrive as columns.

-- name: enter
INSERT INTO search_videos (video_id, owner_id, team_id) VALUES ($1, $2, $3) ON CONFLICT (video_id) DO NOTHING

-- name: enter_late
INSERT INTO search_videos (video_id, owner_id, team_id)
SELECT video_id::text, owner_id::text, team_id::text FROM videos WHERE video_id = $1

-- name: numbered
SELECT number, owner_id, team_id, words FROM search_videos WHERE video_id = $1

-- name: lines
SELECT row_id, segment_id::text, t_start, t_end, text, confidence, language
FROM search_materialized WHERE video_id = $1 ORDER BY t_start, segment_id

-- name: tags
SELECT segment_id::text, entity_type::text, value, normalized_value FROM entities WHERE video_id = $1

-- name: drop_postings
DELETE FROM search_postings WHERE video = $1 AND term = ANY($2::text[])

-- name: add_postings
INSERT INTO search_postings (term, video, places)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[])

-- name: next_version
UPDATE search_state SET version = version + 1 RETURNING version

-- name: count_terms
INSERT INTO search_terms AS t (term, owner_id, team_id, df)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
ON CONFLICT (term, owner_id, team_id) DO UPDATE SET df = t.df + excluded.df

-- name: drop_terms
DELETE FROM search_terms WHERE owner_id = $1 AND team_id = $2 AND term = ANY($3::text[]) AND df <= 0

-- name: note_video
UPDATE search_videos SET version = $2, segments = $3, facts = $4, row_ids = $5, words = $6 WHERE number = $1

-- name: remove
DELETE FROM search_videos WHERE video_id = $1

-- name: version
SELECT version, (SELECT coalesce(max(number), 0) FROM search_videos) FROM search_state

-- name: words_since
SELECT words FROM search_videos WHERE version > $1 ORDER BY version LIMIT $2

-- name: all_terms
SELECT term, sum(df)::bigint FROM search_terms GROUP BY term

-- name: some_terms
SELECT term, sum(df)::bigint FROM search_terms WHERE term = ANY($1::text[]) GROUP BY term

-- name: suggestions
SELECT term, sum(df)::bigint AS segments FROM search_terms WHERE term >= $1 AND term < $2
GROUP BY term ORDER BY segments DESC, term LIMIT $3

-- name: own_suggestions
SELECT term, sum(df)::bigint AS segments FROM search_terms WHERE term >= $1 AND term < $2
AND (owner_id = $4 OR team_id = ANY($5::text[]))
GROUP BY term ORDER BY segments DESC, term LIMIT $3

-- name: postings
SELECT term, video, places FROM search_postings WHERE term = ANY($1::text[]) AND video BETWEEN $2 AND $3

-- name: own_postings
SELECT p.term, p.video, p.places
FROM search_postings AS p JOIN search_videos AS v ON v.number = p.video
WHERE p.term = ANY($1::text[]) AND p.video BETWEEN $2 AND $3
AND (v.owner_id = $4 OR v.team_id = ANY($5::text[]))

-- name: postings_of_videos
SELECT term, video, places FROM search_postings WHERE term = ANY($1::text[]) AND video = ANY($2::bigint[])

-- name: numbers
SELECT number, segments FROM search_videos WHERE segments > 0 AND video_id = ANY($1::text[])

-- name: own_numbers
SELECT number, segments FROM search_videos WHERE segments > 0 AND video_id = ANY($1::text[])
AND (owner_id = $2 OR team_id = ANY($3::text[]))

-- name: videos
SELECT number, segments FROM search_videos WHERE segments > 0 AND number BETWEEN $1 AND $2

-- name: own_videos
SELECT number, segments FROM search_videos WHERE segments > 0 AND number BETWEEN $1 AND $2
AND (owner_id = $3 OR team_id = ANY($4::text[]))

-- name: facts
SELECT number, facts FROM search_videos WHERE number = ANY($1::bigint[])

-- name: row_ids
SELECT number, row_ids FROM search_videos WHERE number = ANY($1::bigint[])

-- name: hits
SELECT m.row_id, m.segment_id::text, m.video_id::text, v.title, m.t_start, m.t_end, m.text, m.bounding_box::text,
    m.confidence, m.language, v.duration_ms, v.s3_thumb_path
FROM search_materialized AS m JOIN videos AS v ON v.video_id = m.video_id
WHERE m.row_id = ANY($1::bigint[])

-- name: own_hits
SELECT m.row_id, m.segment_id::text, m.video_id::text, v.title, m.t_start, m.t_end, m.text, m.bounding_box::text,
    m.confidence, m.language, v.duration_ms, v.s3_thumb_path
FROM search_materialized AS m JOIN videos AS v ON v.video_id = m.video_id
WHERE m.row_id = ANY($1::bigint[]) AND (v.owner_id::text = $2 OR v.team_id::text = ANY($3::text[]))
