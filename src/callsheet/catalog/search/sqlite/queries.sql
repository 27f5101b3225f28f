-- The search's queries on SQLite. Each has its equal of the same name in ../postgres. A list arrives as JSON.

-- name: enter
INSERT INTO search_videos (video_id, owner_id, team_id) VALUES (?1, ?2, ?3) ON CONFLICT (video_id) DO NOTHING

-- name: enter_late
INSERT INTO search_videos (video_id, owner_id, team_id) SELECT video_id, owner_id, team_id FROM videos WHERE video_id = ?1

-- name: numbered
SELECT number, owner_id, team_id, words FROM search_videos WHERE video_id = ?1

-- name: lines
SELECT row_id, segment_id, t_start, t_end, text, confidence, language
FROM search_materialized WHERE video_id = ?1 ORDER BY t_start, segment_id

-- name: tags
SELECT segment_id, entity_type, value, normalized_value FROM entities WHERE video_id = ?1

-- name: drop_postings
DELETE FROM search_postings WHERE video = ?1 AND term IN (SELECT value FROM json_each(?2))

-- name: add_postings
INSERT INTO search_postings (term, video, places) VALUES (?1, ?2, ?3)

-- name: next_version
UPDATE search_state SET version = version + 1 RETURNING version

-- name: count_terms
INSERT INTO search_terms (term, owner_id, team_id, df) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (term, owner_id, team_id) DO UPDATE SET df = df + excluded.df

-- name: drop_terms
DELETE FROM search_terms
WHERE term IN (SELECT value FROM json_each(?3)) AND owner_id = ?1 AND team_id = ?2 AND df <= 0

-- name: note_video
UPDATE search_videos SET version = ?2, segments = ?3, facts = ?4, row_ids = ?5, words = ?6 WHERE number = ?1

-- name: remove
DELETE FROM search_videos WHERE video_id = ?1

-- name: version
SELECT version, (SELECT coalesce(max(number), 0) FROM search_videos) FROM search_state

-- name: words_since
SELECT words FROM search_videos WHERE version > ?1 ORDER BY version LIMIT ?2

-- name: all_terms
SELECT term, sum(df) FROM search_terms GROUP BY term

-- name: some_terms
SELECT term, sum(df) FROM search_terms WHERE term IN (SELECT value FROM json_each(?1)) GROUP BY term

-- name: suggestions
SELECT term, sum(df) AS segments FROM search_terms WHERE term >= ?1 AND term < ?2
GROUP BY term ORDER BY segments DESC, term LIMIT ?3

-- name: own_suggestions
SELECT term, sum(df) AS segments FROM search_terms WHERE term >= ?1 AND term < ?2
AND (owner_id = ?4 OR team_id IN (SELECT value FROM json_each(?5)))
GROUP BY term ORDER BY segments DESC, term LIMIT ?3

-- name: postings
SELECT term, video, places FROM search_postings WHERE term IN (SELECT value FROM json_each(?1))
AND video BETWEEN ?2 AND ?3

-- name: own_postings
SELECT p.term, p.video, p.places
FROM search_postings AS p CROSS JOIN search_videos AS v ON v.number = p.video
WHERE p.term IN (SELECT value FROM json_each(?1)) AND p.video BETWEEN ?2 AND ?3
AND (v.owner_id = ?4 OR v.team_id IN (SELECT value FROM json_each(?5)))

-- name: postings_of_videos
SELECT p.term, p.video, p.places
FROM json_each(?1) AS t CROSS JOIN json_each(?2) AS v CROSS JOIN search_postings AS p
WHERE p.term = t.value AND p.video = v.value

-- name: numbers
SELECT number, segments FROM search_videos WHERE segments > 0 AND video_id IN (SELECT value FROM json_each(?1))

-- name: own_numbers
SELECT number, segments FROM search_videos WHERE segments > 0 AND video_id IN (SELECT value FROM json_each(?1))
AND (owner_id = ?2 OR team_id IN (SELECT value FROM json_each(?3)))

-- name: videos
SELECT number, segments FROM search_videos WHERE segments > 0 AND number BETWEEN ?1 AND ?2

-- name: own_videos
SELECT number, segments FROM search_videos WHERE segments > 0 AND number BETWEEN ?1 AND ?2
AND (owner_id = ?3 OR team_id IN (SELECT value FROM json_each(?4)))

-- name: facts
SELECT number, facts FROM search_videos WHERE number IN (SELECT value FROM json_each(?1))

-- name: row_ids
SELECT number, row_ids FROM search_videos WHERE number IN (SELECT value FROM json_each(?1))

-- name: hits
SELECT m.row_id, m.segment_id, m.video_id, v.title, m.t_start, m.t_end, m.text, m.bounding_box,
    m.confidence, m.language, v.duration_ms, v.s3_thumb_path
FROM search_materialized AS m JOIN videos AS v ON v.video_id = m.video_id
WHERE m.row_id IN (SELECT value FROM json_each(?1))

-- name: own_hits
SELECT m.row_id, m.segment_id, m.video_id, v.title, m.t_start, m.t_end, m.text, m.bounding_box,
    m.confidence, m.language, v.duration_ms, v.s3_thumb_path
FROM search_materialized AS m JOIN videos AS v ON v.video_id = m.video_id
WHERE m.row_id IN (SELECT value FROM json_each(?1))
AND (v.owner_id = ?2 OR v.team_id IN (SELECT value FROM json_each(?3)))
