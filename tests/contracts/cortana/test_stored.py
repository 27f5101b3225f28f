"""A video's derived files count for its owner, and leave the count on deletion."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from callsheet.contracts.cortana import paths
from callsheet.contracts.cortana.maintenance import Keeping
from callsheet.engine.stored import OUTPUTS, VIDEOS
from callsheet.http.maintenance import EVERY_MS, Recount
from callsheet.http.object_access import OwnerLookup
from tests import stores
from tests.contracts.cortana.kit import OTHER, TEAM, TENANT, Stack, running
from tests.media.made_up import MadeUp

YEAR_MS = 365 * 86_400_000


async def parts(stack: Stack, tenant: str = TENANT) -> dict[str, int]:
    parts = (await stack.live.state.quotas.bytes.of(tenant)).parts
    return {part: count for part, count in parts.items() if count}


async def there(stack: Stack, *folders: str) -> int:
    return sum([info.size_bytes for folder in folders async for info in stack.objects.list(folder)])


async def cut(stack: Stack, video_id: str, clip_id: str, **headers: str) -> None:
    body = {"video_id": video_id, "t_start": 1000, "t_end": 2000, "clip_id": clip_id}
    reply = (await stack.client.post("/clips", json=body, headers=headers)).json()
    async for _ in stack.live.engine.watch(reply["job_id"]):
        pass


async def walked(stack: Stack) -> None:
    store = stack.live.engine.store
    walk = Recount(stack.live.state.quotas, store, stack.objects, OwnerLookup(stack.live.state))
    now = await store.now() + EVERY_MS
    while not await walk.step(now):
        pass


async def test_a_video_counts_with_all_that_is_made_of_it(
    places: tuple[str, str], tmp_path: Path, video: Callable[[str], MadeUp]
) -> None:
    async with running(stores.fresh_url(places[0]), tmp_path, objects_url=places[1]) as stack:
        video_id = await stack.added(video("slide").path, title="Results", team_id=TEAM)
        assert (await stack.over(video_id))["status"] == "ready"
        await cut(stack, video_id, "one")
        mate = await stack.live.text(OTHER, teams=[TEAM])
        await cut(stack, video_id, "two", Authorization=f"Bearer {mate}")
        clips = await there(stack, paths.clips(video_id))
        result = clips + await there(stack, paths.proxies(video_id), f"thumbs/{video_id}", paths.frames(video_id))
        whole = {OUTPUTS: result, VIDEOS: await there(stack, paths.ORIGINALS)}
        assert (await parts(stack), await parts(stack, OTHER)) == (whole, {}), "a video's files are its owner's"
        await walked(stack)
        assert await parts(stack) == whole
        keeping = [Keeping(stack.live.engine, stack.catalog, stack.objects) for _ in range(3)]
        await asyncio.gather(*(one.remove_clips(round(time.time() * 1000) + YEAR_MS) for one in keeping))
        await walked_again(stack)
        assert await parts(stack) == {**whole, OUTPUTS: result - clips}
        assert (await stack.client.delete(f"/videos/{video_id}")).status_code == 204
        assert (await parts(stack), await there(stack, "")) == ({}, 0)


async def walked_again(stack: Stack) -> None:
    """Of several who remove the same clip, one may have found its file gone: the recount knows."""
    await stack.live.engine.store.delete_document("storage_walk", "objects")
    await walked(stack)
