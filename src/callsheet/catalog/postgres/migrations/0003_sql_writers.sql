-- Workers that write the catalogue by SQL, with the contract's columns and no others: ids come by themselves, an entity is
-- its segment's, and `refresh_search_materialized()` finds out what was changed.

ALTER TABLE segments ALTER COLUMN segment_id SET DEFAULT gen_random_uuid()::text;
ALTER TABLE segments ALTER COLUMN is_merged SET DEFAULT true; -- our own raw detections say that they are not
ALTER TABLE entities ALTER COLUMN entity_id SET DEFAULT gen_random_uuid()::text;
CREATE INDEX segments_by_id ON segments (segment_id);

CREATE FUNCTION entities_of_their_segment() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    SELECT s.video_id, s.owner_id, s.team_id INTO NEW.video_id, NEW.owner_id, NEW.team_id
    FROM segments s WHERE s.segment_id = NEW.segment_id AND s.video_id = coalesce(NEW.video_id, s.video_id) LIMIT 1;
    IF NOT FOUND THEN
        RAISE foreign_key_violation USING MESSAGE = format('segment_id: there is no segment %s', NEW.segment_id);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER entities_of_their_segment BEFORE INSERT ON entities FOR EACH ROW
    WHEN (NEW.video_id IS NULL OR NEW.owner_id IS NULL) EXECUTE FUNCTION entities_of_their_segment();

-- Which videos have to be brought up to date. Raw detections, which come and go while a video is read, are not searched.
CREATE FUNCTION segments_are_stale() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE videos v SET search_stale = true WHERE NOT v.search_stale
        AND v.video_id IN (SELECT c.video_id FROM changed c WHERE c.is_merged OR TG_OP = 'UPDATE');
    RETURN NULL;
END $$;
CREATE TRIGGER segments_inserted AFTER INSERT ON segments REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION segments_are_stale();
CREATE TRIGGER segments_updated AFTER UPDATE ON segments REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION segments_are_stale();
CREATE TRIGGER segments_deleted AFTER DELETE ON segments REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION segments_are_stale();

CREATE FUNCTION entities_are_stale() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE videos v SET search_stale = true WHERE NOT v.search_stale AND v.video_id IN (SELECT c.video_id FROM changed c);
    RETURN NULL;
END $$;
CREATE TRIGGER entities_inserted AFTER INSERT ON entities REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION entities_are_stale();
CREATE TRIGGER entities_updated AFTER UPDATE ON entities REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION entities_are_stale();
CREATE TRIGGER entities_deleted AFTER DELETE ON entities REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION entities_are_stale();

CREATE FUNCTION videos_are_stale() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.search_stale := true;
    NEW.title_folded := lower(NEW.title);
    RETURN NEW;
END $$;
CREATE TRIGGER videos_renamed BEFORE UPDATE OF title ON videos FOR EACH ROW
    WHEN (NEW.title IS DISTINCT FROM OLD.title) EXECUTE FUNCTION videos_are_stale();
REVOKE ALL ON FUNCTION entities_of_their_segment(), segments_are_stale(), entities_are_stale(), videos_are_stale() FROM PUBLIC;

-- A video without a merged segment is searched by what it has: somebody merges in place, by UPDATE and DELETE.
CREATE OR REPLACE FUNCTION refresh_search_materialized(only_video uuid DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    stale uuid;
    merged boolean;
    refreshed integer := 0;
BEGIN
    FOR stale IN
        SELECT v.video_id FROM videos v
        WHERE v.search_stale AND v.video_id = coalesce(only_video, v.video_id)
        ORDER BY v.video_id FOR UPDATE SKIP LOCKED
    LOOP
        SELECT coalesce(bool_or(s.is_merged), true) INTO merged FROM segments s WHERE s.video_id = stale;
        DELETE FROM search_materialized m WHERE m.video_id = stale AND NOT EXISTS (
            SELECT FROM segments s JOIN videos v ON v.video_id = s.video_id
            WHERE s.video_id = stale AND s.segment_id = m.segment_id AND s.is_merged = merged AND
                (s.owner_id, s.team_id, v.title, s.t_start, s.t_end, s.text, s.normalized_text, s.confidence, s.bounding_box,
                 s.language) IS NOT DISTINCT FROM
                (m.owner_id, m.team_id, m.title, m.t_start, m.t_end, m.text, m.normalized_text, m.confidence, m.bounding_box,
                 m.language));
        INSERT INTO search_materialized (
            segment_id, video_id, owner_id, team_id, title, t_start, t_end, text, normalized_text, confidence, bounding_box,
            language)
        SELECT s.segment_id, s.video_id, s.owner_id, s.team_id, v.title, s.t_start, s.t_end, s.text, s.normalized_text,
               s.confidence, s.bounding_box, s.language
        FROM segments s JOIN videos v ON v.video_id = s.video_id
        WHERE s.video_id = stale AND s.is_merged = merged
        ORDER BY s.t_start, s.t_end, s.segment_id
        ON CONFLICT (video_id, segment_id) DO NOTHING;
        UPDATE videos SET search_stale = false, search_unindexed = true WHERE video_id = stale;
        refreshed := refreshed + 1;
    END LOOP;
    RETURN refreshed;
END $$;
