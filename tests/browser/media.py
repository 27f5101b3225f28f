"""For tests of the media pages: a server with a catalogue, an optional worker, and made-up videos."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw
from playwright.async_api import Page

from callsheet.app import Callsheet
from callsheet.app.video import add_video
from callsheet.asgi import ROUTERS
from callsheet.catalog.protocol import Catalog
from callsheet.catalog.records import NewEntity, NewSegment, VideoFacts, VideoStatus
from callsheet.contracts.aura.tasks import add_tasks as add_compose
from callsheet.contracts.cortana import paths
from callsheet.objects import Objects
from tests import stores
from tests.catalog import kit
from tests.http.live import Live, serving
from tests.media.made_up.drawing import Film, Line, plain
from tests.media.made_up.making import Coding, film_in
from tests.running_worker import working

KINDS = {"@": "mention", "#": "hashtag", "http": "url"}


class Media(NamedTuple):
    """A server of videos with its catalogue and objects."""

    live: Live
    catalog: Catalog
    objects: Objects

    async def ready(self, *texts: str, **fields: Any) -> str:
        """Add a video with these texts, one second each, with a poster and frames; its id."""
        video = await kit.added(self.catalog, **{"owner_id": "", **fields})
        writer = kit.writer()
        await self.catalog.begin(video.video_id, writer, "segment_index")
        facts = VideoFacts(s3_thumb_path=paths.poster(video.video_id), duration_ms=1_000 * len(texts))
        await self.catalog.note(video.video_id, writer, facts)
        segments = [kit.segment(text, 1_000 * at) for at, text in enumerate(texts)]
        results = [_entity(of, word) for of in segments for word in of.text.split()]
        await self.catalog.replace_segments(video.video_id, writer, segments, [one for one in results if one])
        picture = _picture()
        await self.objects.put(paths.poster(video.video_id), picture)
        await self.objects.put(paths.frame(video.video_id, 0), picture)
        listing = json.dumps({"frames": [{"since_ms": 0, "timestamp_ms": 0}]})
        await self.objects.put(paths.manifest(video.video_id), listing.encode())
        return video.video_id

    async def failed(self, message: str, **fields: Any) -> str:
        """A video whose pipeline ended with an error."""
        video = await kit.added(self.catalog, **{"owner_id": "", **fields})
        writer = kit.writer()
        await self.catalog.begin(video.video_id, writer, "transcode")
        await self.catalog.fail(video.video_id, writer, json.dumps({"type": "NotAVideo", "message": message}))
        return video.video_id

    async def waiting(self, status: VideoStatus, **fields: Any) -> str:
        """Add a video whose pipeline has not begun."""
        return (await kit.added(self.catalog, **{"owner_id": "", "status": status, **fields})).video_id

    async def ids(self) -> list[str]:
        """All videos, newest first."""
        return [one["video_id"] for one in (await self.live.client.get("/videos")).json()["videos"]]


def _entity(of: NewSegment, word: str) -> NewEntity | None:
    kind = next((kind for head, kind in KINDS.items() if word.startswith(head)), None)
    return kit.entity(of, word, kind) if kind else None


def _picture() -> bytes:
    picture = Image.new("RGB", (640, 360), (235, 238, 244))
    ImageDraw.Draw(picture).text((14, 24), "A line of text on a slide", fill=(20, 30, 60), font_size=32)
    written_text = io.BytesIO()
    picture.save(written_text, "JPEG")
    return written_text.getvalue()


@contextlib.asynccontextmanager
async def media_server(folder: Path, *, worker: bool = False) -> AsyncIterator[Media]:
    """All that `callsheet up` serves, on SQLite and a folder."""
    url = stores.fresh_url("sqlite")
    app = Callsheet(url)
    app.objects_url = f"file://{folder / 'objects'}"
    add_video(app)
    add_compose(app)
    await app.migrate()
    async with app:
        objects, catalog = await app.objects(), await app.catalog()
        beside = working(app, workspaces=folder / "work", poll=0.05, concurrency=2)
        async with (
            serving(url, routers=ROUTERS, objects=objects, catalog=catalog) as live,
            beside if worker else contextlib.nullcontext(),
        ):
            yield Media(live, catalog, objects)


def tiny_film(folder: Path) -> Path:
    """Three seconds with four texts, small enough to be read at once."""
    lines = (
        Line("Harbor lights", 0, 1.5, (60, 60), 44),
        Line("@marta_builds", 0, 3, (60, 160), 40),
        Line("Winter river", 1.5, 3, (60, 260), 44),
    )
    return film_in(folder, "tiny", Film(lines, plain((250, 250, 248)), 3, 10, (640, 360)), Coding()).path


async def drop(page: Page, path: Path, name: str = "") -> None:
    """Let a file fall on the page, as from a window of files."""
    data = await page.evaluate_handle(
        """([text, name]) => {
          const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
          const held = new DataTransfer();
          held.items.add(new File([bytes], name, { type: "video/mp4", lastModified: 1 }));
          return held;
        }""",
        [base64.b64encode(path.read_bytes()).decode(), name or path.name],
    )
    zone = page.locator(".dropzone")
    await zone.dispatch_event("dragover", {"dataTransfer": data})
    await zone.dispatch_event("drop", {"dataTransfer": data})
