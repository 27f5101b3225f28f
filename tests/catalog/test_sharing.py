"""The catalogue and the engine share one database, both running."""

from __future__ import annotations

import asyncio

from callsheet.catalog import migrate_catalog, open_catalog
from callsheet.catalog.records import SERVICE
from tests import stores
from tests.catalog.kit import added, segment, writer
from tests.store_driver import StoreDriver


async def test_the_engine_works_while_a_video_is_indexed(fresh_url: str) -> None:
    store = await stores.open_store(fresh_url)
    await migrate_catalog(fresh_url)
    catalog = open_catalog(fresh_url)
    await catalog.open()
    driver, indexed = StoreDriver(store), asyncio.Event()

    async def work() -> int:
        count = 0
        while not indexed.is_set() or count < 5:
            await driver.done(await driver.running())
            count += 1
        return count

    async def index() -> None:
        new = await added(catalog)
        await catalog.begin(new.video_id, writer(), "segment_index")
        texts = [segment(f"line {n} of {n % 97}", n) for n in range(2_000)]
        for start in range(0, len(texts), 500):
            await catalog.add_detections(new.video_id, writer(), texts[start : start + 500])
        await catalog.replace_segments(new.video_id, writer(), texts, [])
        indexed.set()
        assert len(await catalog.segments_of(new.video_id, SERVICE)) == 2_000

    try:
        count, _ = await asyncio.gather(work(), index())
        assert count >= 5
    finally:
        await catalog.close()
        await store.close()
