"""Row-level security with real roles, as PostgREST and Supabase use them: SET ROLE, and the token's claims set."""

from __future__ import annotations

import functools
import json
import logging
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from callsheet.catalog import migrate_catalog, open_catalog
from callsheet.catalog.postgres.schema import ACCESS
from callsheet.catalog.postgres.store import PostgresCatalog
from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import SERVICE, Reader, VideoPage
from callsheet.catalog.search.records import Query
from callsheet.kernel.errors import StoreError
from callsheet.store import store_from_url
from tests import stores
from tests.catalog.kit import clip, ready
from tests.servers import PostgresServer

TABLES = ("videos", "segments", "entities", "clips", "search_materialized")
OWN = ("search_state", "search_videos", "search_postings", "search_terms", "catalog_schema", "catalog_steps")
ENGINE = ("inbox_jobs", "job_credentials", "job_events", "documents", "jobs", "callsheet_schema", "idempotency_keys")
NEW_VIDEO = (
    "INSERT INTO videos (video_id, owner_id, title, status, s3_original_path) VALUES ($1, $2, 't', 'queued', 'p')"
)


AS_SUPABASE = """
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO anon, authenticated;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON SEQUENCES TO anon, authenticated;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON FUNCTIONS TO anon, authenticated;
"""


class Database:
    """A database with three videos, read by several callers."""

    def __init__(self, catalog: Catalog, session: Any, names: Mapping[str, str]) -> None:
        self.catalog = catalog
        self.session = session
        self.names = names

    async def ask(self, role: str, claims: Mapping[str, Any] | None, sql: str, *parameters: object) -> list[Any]:
        """Run a query as PostgREST would: a transaction with the token's role and claims. Nothing is kept."""
        transaction = self.session.transaction()
        await transaction.start()
        try:
            await self.session.execute(f"SET LOCAL ROLE {role}")
            text = "" if claims is None else json.dumps(claims)
            await self.session.execute("SELECT set_config('request.jwt.claims', $1, true)", text)
            return list(await self.session.fetch(sql, *parameters))
        finally:
            await transaction.rollback()

    async def seen(self, role: str, claims: Mapping[str, Any] | None) -> dict[str, set[str]]:
        """Return, per table, the videos whose rows are visible."""
        by_name = {}
        for table in TABLES:
            rows = await self.ask(role, claims, f"SELECT DISTINCT video_id FROM {table}")
            by_name[table] = {self.names[str(video_id)] for (video_id,) in rows}
        return by_name


@functools.cache
def shared_url() -> str:
    """Return one shared database's URL: what a test asks is rolled back, and what it grants is taken back."""
    return stores.fresh_url("postgres")


async def fill(catalog: Catalog) -> None:
    for owner_id, team_id in (("ann", None), ("ann", "crew"), ("bob", None)):
        await catalog.add_clip(clip(await ready(catalog, "hello #one", owner_id=owner_id, team_id=team_id)))


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    url = shared_url()
    admin = await asyncpg.connect(url)
    await admin.execute(ACCESS.roles)
    await admin.execute(AS_SUPABASE)
    await admin.close()
    await store_from_url(url).migrate()
    await migrate_catalog(url)
    catalog = open_catalog(url)
    await catalog.open()
    if not await catalog.videos(VideoPage(), SERVICE):
        await fill(catalog)
    names = {("ann", None): "hers", ("ann", "crew"): "crew's", ("bob", None): "his"}
    videos = await catalog.videos(VideoPage(), SERVICE)
    session = await asyncpg.connect(url)
    yield Database(catalog, session, {v.video_id: names[v.owner_id, v.team_id] for v in videos})
    await session.execute(f"REVOKE ALL ON {', '.join((*TABLES, *OWN))} FROM anon, authenticated")
    await session.execute(f"GRANT SELECT ON {', '.join(TABLES)} TO authenticated")
    await session.close()
    await catalog.close()


def of_each(videos: set[str]) -> dict[str, set[str]]:
    return dict.fromkeys(TABLES, videos)


SEEN: dict[str, tuple[dict[str, Any], set[str]]] = {
    "owner": ({"sub": "ann"}, {"hers", "crew's"}),
    "other": ({"sub": "bob"}, {"his"}),
    "team": ({"sub": "x", "team_id": "crew"}, {"crew's"}),
    "teams": ({"sub": "x", "team_ids": ["cast", "crew"]}, {"crew's"}),
    "teams of the app": ({"sub": "bob", "app_metadata": {"team_ids": ["crew"]}}, {"crew's", "his"}),
    "user's own words": ({"sub": "x", "user_metadata": {"team_ids": ["crew"]}}, set()),
    "nobody": ({}, set()),
    "empty": ({"sub": "", "team_id": "", "team_ids": []}, set()),
    "odd": ({"sub": None, "team_ids": "crew", "app_metadata": []}, set()),
}


async def test_readers_see_their_own_rows_and_their_teams(database: Database) -> None:
    for who, (claims, visible) in SEEN.items():
        assert await database.seen("authenticated", claims) == of_each(visible), who
    assert await database.seen("authenticated", None) == of_each(set())


async def test_readers_change_nothing(database: Database) -> None:
    claims = {"sub": "ann"}
    for role in ("authenticated", "anon"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await database.ask(role, claims, NEW_VIDEO, uuid.uuid4(), "ann")
        for table in TABLES:
            for sql in (f"UPDATE {table} SET owner_id = 'bob'", f"DELETE FROM {table}"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await database.ask(role, claims, sql)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await database.ask(role, claims, "SELECT refresh_search_materialized()")


async def test_rights_that_somebody_gave_to_all_do_not_show_or_change_rows(database: Database) -> None:
    """A new Supabase project grants everything on tables of `public`; row policies still apply."""
    await database.session.execute(f"GRANT ALL ON {', '.join(TABLES)} TO anon, authenticated")
    assert await database.seen("anon", {"sub": "ann"}) == of_each(set())
    assert await database.seen("authenticated", {"sub": "bob"}) == of_each({"his"})
    for role in ("authenticated", "anon"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await database.ask(role, {"sub": "ann"}, NEW_VIDEO, uuid.uuid4(), "ann")
        for table in TABLES:
            changes = f"UPDATE {table} SET owner_id = 'ann' RETURNING 1"
            assert await database.ask(role, {"sub": "ann"}, changes) == []
            assert await database.ask(role, {"sub": "ann"}, f"DELETE FROM {table} RETURNING 1") == []


async def test_words_and_jobs_are_shown_to_nobody(database: Database) -> None:
    for role in ("anon", "authenticated"):
        for table in (*OWN, *ENGINE):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await database.ask(role, {"sub": "ann"}, f"SELECT 1 FROM {table}")
        for table in OWN:
            await database.session.execute(f"GRANT SELECT ON {table} TO {role}")
            assert await database.ask(role, {"sub": "ann"}, f"SELECT 1 FROM {table}") == []


async def test_workers_write_past_the_policies(database: Database) -> None:
    worker = {"role": "service_role"}
    assert await database.seen("service_role", worker) == of_each({"hers", "crew's", "his"})
    assert await database.seen("service_role", None) == of_each({"hers", "crew's", "his"})
    for table in TABLES:
        whole = len(await database.ask("service_role", worker, f"SELECT 1 FROM {table}"))
        assert whole
        for sql in (f"UPDATE {table} SET owner_id = 'bob' RETURNING 1", f"DELETE FROM {table} RETURNING 1"):
            assert len(await database.ask("service_role", worker, sql)) == whole
    await database.ask("service_role", worker, NEW_VIDEO, uuid.uuid4(), "somebody")
    await database.ask("service_role", worker, "SELECT refresh_search_materialized()")
    assert await database.ask("service_role", worker, "SELECT id FROM jobs") == []


async def test_a_worker_for_a_user_reads_what_the_user_may(database: Database) -> None:
    """The contract: the service role's reads respect the policies when its token names a user, its writes do not."""
    claims = {"role": "service_role", "sub": "bob"}
    assert await database.seen("service_role", claims) == of_each({"his"})
    await database.ask("service_role", claims, NEW_VIDEO, uuid.uuid4(), "ann")


@pytest.mark.parametrize(
    ("claims", "names"), [({"sub": "bob"}, {"his"}), ({"sub": "x", "team_id": "crew"}, {"crew's"})]
)
async def test_a_worker_for_a_user_reads_no_words_of_others(
    database: Database, claims: dict[str, Any], names: set[str]
) -> None:
    """The search index contains every video's words; row policies cover every index table."""
    rows = await database.ask("service_role", claims, "SELECT video_id FROM search_videos")
    assert {database.names[video_id] for (video_id,) in rows} == names
    videos = "SELECT DISTINCT v.video_id FROM search_postings p JOIN search_videos v ON v.number = p.video"
    assert {database.names[video_id] for (video_id,) in await database.ask("service_role", claims, videos)} == names
    count = "SELECT count(*) FROM search_postings WHERE video NOT IN (SELECT number FROM search_videos)"
    assert (await database.ask("service_role", claims, count))[0][0] == 0
    for owner_id, team_id in await database.ask("service_role", claims, "SELECT owner_id, team_id FROM search_terms"):
        assert owner_id == claims["sub"] or team_id == claims.get("team_id")


async def as_user(url: str, session: Any, name: str) -> str:
    await session.execute(f"CREATE ROLE {name} LOGIN")
    return urlsplit(url)._replace(netloc=f"{name}@{urlsplit(url).netloc.rpartition('@')[2]}").geturl()


async def test_a_user_who_may_make_no_roles_can_migrate(caplog: pytest.LogCaptureFixture) -> None:
    with PostgresServer.start(settings={"max_connections": "30"}) as server:  # roles are the whole server's
        url = server.create_database()
        admin = await asyncpg.connect(url)
        own = await as_user(url, admin, "plain")
        await admin.execute("GRANT CREATE ON SCHEMA public TO plain")
        with caplog.at_level(logging.WARNING, "callsheet.catalog"):
            ran = await migrate_catalog(own)
        assert "catalogue 0001_catalog" in ran
        assert "catalogue access" not in ran
        for role in ("anon", "authenticated", "service_role"):
            assert f"CREATE ROLE {role} NOLOGIN" in caplog.text
            await admin.execute(f"CREATE ROLE {role} NOLOGIN")
        assert "run `callsheet migrate` again" in caplog.text
        assert await migrate_catalog(own) == ["catalogue access"]
        await admin.close()
        await works(own)


async def test_a_user_who_would_see_an_empty_catalogue_is_told_so(database: Database) -> None:
    assert isinstance(database.catalog, PostgresCatalog)
    name = f"plain_{uuid.uuid4().hex[:8]}"
    own = await as_user(database.catalog.target.dsn, database.session, name)
    await database.session.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}")
    with pytest.raises(StoreError, match="GRANT service_role TO"):
        await open_catalog(own).open()
    await database.session.execute(f"GRANT service_role TO {name}")
    await works(own)


async def works(url: str) -> None:
    catalog = open_catalog(url)
    await catalog.open()
    try:
        video = await ready(catalog, "something new", owner_id="dora")
        assert len((await catalog.search(Query("something"), Reader("dora"))).hits) == 1
        await catalog.delete_video(video.video_id)
    finally:
        await catalog.close()
