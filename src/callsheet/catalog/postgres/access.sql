-- Who may do what with the catalogue, by the roles of Supabase and PostgREST. Runs with every `callsheet migrate`, for the
-- roles may be made later than the tables. Readers (`authenticated`) see what is theirs or their teams'. Workers
-- (`service_role`) write past that, and see all unless their token names a user. `anon` sees nothing. The owner of the
-- tables, who runs the migrations, is bound by none of it.

-- name: roles
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'anon') THEN
        CREATE ROLE anon NOLOGIN NOINHERIT;
    END IF;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        RAISE WARNING 'there is no role anon and this user may not make it: let an administrator run CREATE ROLE anon NOLOGIN NOINHERIT, then run `callsheet migrate` again';
END $$;
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'authenticated') THEN
        CREATE ROLE authenticated NOLOGIN NOINHERIT;
    END IF;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        RAISE WARNING 'there is no role authenticated and this user may not make it: let an administrator run CREATE ROLE authenticated NOLOGIN NOINHERIT, then run `callsheet migrate` again';
END $$;
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'service_role') THEN
        CREATE ROLE service_role NOLOGIN NOINHERIT;
    END IF;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        RAISE WARNING 'there is no role service_role and this user may not make it: let an administrator run CREATE ROLE service_role NOLOGIN NOINHERIT, then run `callsheet migrate` again';
END $$;

-- name: roles_are_here
SELECT count(*) = 3 FROM pg_roles WHERE rolname IN ('anon', 'authenticated', 'service_role');

-- name: grants
REVOKE ALL ON videos, segments, entities, clips, search_materialized, catalog_reader, catalog_schema, catalog_steps,
    search_state, search_videos, search_postings, search_terms
    FROM PUBLIC, anon, authenticated;
REVOKE ALL ON FUNCTION refresh_search_materialized(uuid) FROM PUBLIC, anon, authenticated;
GRANT SELECT ON videos, segments, entities, clips, search_materialized, catalog_reader TO authenticated, service_role;
GRANT INSERT, UPDATE, DELETE ON videos, segments, entities, clips, search_materialized TO service_role;
GRANT SELECT ON catalog_schema TO service_role;
GRANT SELECT, INSERT, UPDATE, DELETE ON search_state, search_videos, search_postings, search_terms TO service_role;
GRANT EXECUTE ON FUNCTION refresh_search_materialized(uuid) TO service_role;

-- name: policies
DROP POLICY IF EXISTS readers ON videos;
CREATE POLICY readers ON videos FOR SELECT TO authenticated, service_role
    USING (owner_id = (SELECT r.owner_id FROM catalog_reader r) OR team_id = ANY ((SELECT r.team_ids FROM catalog_reader r)::text[]));
DROP POLICY IF EXISTS readers ON segments;
CREATE POLICY readers ON segments FOR SELECT TO authenticated, service_role
    USING (owner_id = (SELECT r.owner_id FROM catalog_reader r) OR team_id = ANY ((SELECT r.team_ids FROM catalog_reader r)::text[]));
DROP POLICY IF EXISTS readers ON entities;
CREATE POLICY readers ON entities FOR SELECT TO authenticated, service_role
    USING (owner_id = (SELECT r.owner_id FROM catalog_reader r) OR team_id = ANY ((SELECT r.team_ids FROM catalog_reader r)::text[]));
DROP POLICY IF EXISTS readers ON clips;
CREATE POLICY readers ON clips FOR SELECT TO authenticated, service_role
    USING (owner_id = (SELECT r.owner_id FROM catalog_reader r) OR team_id = ANY ((SELECT r.team_ids FROM catalog_reader r)::text[]));
DROP POLICY IF EXISTS readers ON search_materialized;
CREATE POLICY readers ON search_materialized FOR SELECT TO authenticated, service_role
    USING (owner_id = (SELECT r.owner_id FROM catalog_reader r) OR team_id = ANY ((SELECT r.team_ids FROM catalog_reader r)::text[]));

DROP POLICY IF EXISTS workers_read ON videos;
CREATE POLICY workers_read ON videos FOR SELECT TO service_role USING ((SELECT r.owner_id FROM catalog_reader r) IS NULL);
DROP POLICY IF EXISTS workers_read ON segments;
CREATE POLICY workers_read ON segments FOR SELECT TO service_role USING ((SELECT r.owner_id FROM catalog_reader r) IS NULL);
DROP POLICY IF EXISTS workers_read ON entities;
CREATE POLICY workers_read ON entities FOR SELECT TO service_role USING ((SELECT r.owner_id FROM catalog_reader r) IS NULL);
DROP POLICY IF EXISTS workers_read ON clips;
CREATE POLICY workers_read ON clips FOR SELECT TO service_role USING ((SELECT r.owner_id FROM catalog_reader r) IS NULL);
DROP POLICY IF EXISTS workers_read ON search_materialized;
CREATE POLICY workers_read ON search_materialized FOR SELECT TO service_role
    USING ((SELECT r.owner_id FROM catalog_reader r) IS NULL);

DROP POLICY IF EXISTS workers_insert ON videos;
CREATE POLICY workers_insert ON videos FOR INSERT TO service_role WITH CHECK (true);
DROP POLICY IF EXISTS workers_insert ON segments;
CREATE POLICY workers_insert ON segments FOR INSERT TO service_role WITH CHECK (true);
DROP POLICY IF EXISTS workers_insert ON entities;
CREATE POLICY workers_insert ON entities FOR INSERT TO service_role WITH CHECK (true);
DROP POLICY IF EXISTS workers_insert ON clips;
CREATE POLICY workers_insert ON clips FOR INSERT TO service_role WITH CHECK (true);
DROP POLICY IF EXISTS workers_insert ON search_materialized;
CREATE POLICY workers_insert ON search_materialized FOR INSERT TO service_role WITH CHECK (true);

DROP POLICY IF EXISTS workers_update ON videos;
CREATE POLICY workers_update ON videos FOR UPDATE TO service_role USING (true) WITH CHECK (true);
DROP POLICY IF EXISTS workers_update ON segments;
CREATE POLICY workers_update ON segments FOR UPDATE TO service_role USING (true) WITH CHECK (true);
DROP POLICY IF EXISTS workers_update ON entities;
CREATE POLICY workers_update ON entities FOR UPDATE TO service_role USING (true) WITH CHECK (true);
DROP POLICY IF EXISTS workers_update ON clips;
CREATE POLICY workers_update ON clips FOR UPDATE TO service_role USING (true) WITH CHECK (true);
DROP POLICY IF EXISTS workers_update ON search_materialized;
CREATE POLICY workers_update ON search_materialized FOR UPDATE TO service_role USING (true) WITH CHECK (true);

DROP POLICY IF EXISTS workers_delete ON videos;
CREATE POLICY workers_delete ON videos FOR DELETE TO service_role USING (true);
DROP POLICY IF EXISTS workers_delete ON segments;
CREATE POLICY workers_delete ON segments FOR DELETE TO service_role USING (true);
DROP POLICY IF EXISTS workers_delete ON entities;
CREATE POLICY workers_delete ON entities FOR DELETE TO service_role USING (true);
DROP POLICY IF EXISTS workers_delete ON clips;
CREATE POLICY workers_delete ON clips FOR DELETE TO service_role USING (true);
DROP POLICY IF EXISTS workers_delete ON search_materialized;
CREATE POLICY workers_delete ON search_materialized FOR DELETE TO service_role USING (true);

DROP POLICY IF EXISTS workers ON catalog_schema;
CREATE POLICY workers ON catalog_schema FOR SELECT TO service_role USING (true);
DROP POLICY IF EXISTS workers ON search_state;
CREATE POLICY workers ON search_state TO service_role USING (true) WITH CHECK (true);

-- The index of words is written by workers. One whose token names a user reads of it what that user may read.
DROP POLICY IF EXISTS workers ON search_videos;
DROP POLICY IF EXISTS workers ON search_postings;
DROP POLICY IF EXISTS workers ON search_terms;
DROP POLICY IF EXISTS workers_read ON search_videos;
CREATE POLICY workers_read ON search_videos FOR SELECT TO service_role
    USING ((SELECT r.owner_id FROM catalog_reader r) IS NULL OR owner_id = (SELECT r.owner_id FROM catalog_reader r)
        OR team_id = ANY ((SELECT r.team_ids FROM catalog_reader r)::text[]));
DROP POLICY IF EXISTS workers_read ON search_terms;
CREATE POLICY workers_read ON search_terms FOR SELECT TO service_role
    USING ((SELECT r.owner_id FROM catalog_reader r) IS NULL OR owner_id = (SELECT r.owner_id FROM catalog_reader r)
        OR team_id <> '' AND team_id = ANY ((SELECT r.team_ids FROM catalog_reader r)::text[]));
DROP POLICY IF EXISTS workers_read ON search_postings;
CREATE POLICY workers_read ON search_postings FOR SELECT TO service_role
    USING ((SELECT r.owner_id FROM catalog_reader r) IS NULL OR video IN (SELECT v.number FROM search_videos v));
DO $$ DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['search_videos', 'search_postings', 'search_terms'] LOOP
        EXECUTE format('DROP POLICY IF EXISTS workers_insert ON %I', name);
        EXECUTE format('CREATE POLICY workers_insert ON %I FOR INSERT TO service_role WITH CHECK (true)', name);
        EXECUTE format('DROP POLICY IF EXISTS workers_update ON %I', name);
        EXECUTE format('CREATE POLICY workers_update ON %I FOR UPDATE TO service_role USING (true) WITH CHECK (true)', name);
        EXECUTE format('DROP POLICY IF EXISTS workers_delete ON %I', name);
        EXECUTE format('CREATE POLICY workers_delete ON %I FOR DELETE TO service_role USING (true)', name);
    END LOOP;
END $$;
