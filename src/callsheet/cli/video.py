"""`callsheet video`: add videos, search what is on screen in them, cut clips. No server is needed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import click

from callsheet.app import Callsheet
from callsheet.app.builtin import add_builtin
from callsheet.catalog.records import SERVICE, Clip, Video, VideoPage, VideoStatus
from callsheet.catalog.search.records import Hit, Query
from callsheet.contracts.cortana import paths
from callsheet.contracts.cortana.following import Far, follow
from callsheet.contracts.cortana.jobs import PIPELINE, clip_job, start_job
from callsheet.contracts.cortana.watching import as_range
from callsheet.engine.ids import new_id
from callsheet.kernel.durations import milliseconds
from callsheet.kernel.job import Status
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.media.reading.exports import WRITERS
from callsheet.settings import VIDEO_ADD, VIDEO_CLIP, VIDEO_LIST, VIDEO_SEARCH, VIDEO_TEXT

from . import bars, logs
from .apps import Places
from .drawing import Text, escape
from .failures import Told, WrongInput
from .options import settings
from .passwords import check_url
from .records import print_json
from .stores import beside, run
from .tables import console, table

STYLES = {VideoStatus.READY: "green", VideoStatus.FAILED: "red", VideoStatus.PROCESSING: "blue"}
NARROW = 8


@click.group(
    "video",
    epilog="""\b
Examples:
  callsheet video add talk.mp4 demo.mov --languages eng,deu
  callsheet video search '"release notes" -draft'
  callsheet video clip VIDEO_ID 12.5 20
  callsheet video text VIDEO_ID --format srt > talk.srt""",
)
def command() -> None:
    """Add videos, search what is on screen in them, cut clips.

    The work is done here and now; with --detach, by workers that run elsewhere on the same store.
    """
    logs.set_up("human", "warning")


@command.command("add", epilog="\b\nExample:\n  callsheet video add talk.mp4 --title 'The talk'")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@settings(VIDEO_ADD)
def add(files: tuple[Path, ...], **given: Any) -> None:
    """Add videos and make their text searchable. Ctrl-C stops; the same command, or a worker, goes on."""
    if missing := [path for path in files if not path.is_file()]:
        raise WrongInput(f"{missing[0]} is no file")

    async def work() -> None:
        async with _opened(given) as app:
            ids = [await _added(app, path, given) for path in files]
            if not given["detach"]:
                await _worked(app, ids, [path.name for path in files], quiet=given["json"])
            videos = [video for each in ids if (video := await (await app.catalog()).video(each, SERVICE)) is not None]
        _show(videos, as_json=given["json"])
        if failed := [video for video in videos if video.status is VideoStatus.FAILED]:
            told = json.loads(failed[0].error or "{}")
            raise Told(f"{failed[0].title}: {told.get('message', 'it failed')}")

    run(work())


@command.command("list", epilog="\b\nExample:\n  callsheet video list --json")
@settings(VIDEO_LIST)
def list_(limit: int, **given: Any) -> None:
    """Show the videos, newest first."""

    async def work() -> None:
        async with _opened(given) as app:
            found = await (await app.catalog()).videos(VideoPage(limit), SERVICE)
        if not found and not given["json"]:
            click.echo("no videos yet; callsheet video add FILE")
        else:
            _show(found, as_json=given["json"])

    run(work())


@command.command("search", epilog="\b\nExample:\n  callsheet video search quarterly revenue")
@click.argument("words", nargs=-1, required=True)
@settings(VIDEO_SEARCH)
def search(words: tuple[str, ...], mode: str, video: Sequence[str], limit: int, **given: Any) -> None:
    """Find what was on screen: words, "phrases", -without."""

    async def work() -> None:
        async with _opened(given) as app:
            query = Query(" ".join(words), mode, tuple(video or ()), limit=limit)
            found = await (await app.catalog()).search(query, SERVICE)
        if given["json"]:
            print_json([{**hit._asdict(), "marks": [mark._asdict() for mark in hit.marks]} for hit in found.hits])
            return
        out = console()
        for hit in found.hits:
            out.print(_line(hit))
        more = "" if found.total_is_exact else "+"
        out.print(f"{found.total}{more} found" if found.hits else "nothing found; try --mode substring, or fewer words")

    run(work())


@command.command("clip", epilog="\b\nExample:\n  callsheet video clip 0199f0c2-… 12.5 20 --padding 1s --output cut.mp4")
@click.argument("video_id")
@click.argument("start", type=float)
@click.argument("end", type=float)
@settings(VIDEO_CLIP)
def clip(video_id: str, start: float, end: float, **given: Any) -> None:
    """Cut a clip from START to END, in seconds, exact to the frame, and write it to a file."""
    if end <= start:
        raise WrongInput("END must be after START")

    async def work() -> None:
        async with _opened(given) as app:
            video = await _found(app, video_id)
            made = await _cut(app, video, (round(start * 1000), round(end * 1000)), milliseconds(given["padding"]))
            target = Path(given["output"] or f"{made.clip_id}.mp4")
            await (await app.objects()).get_file(made.s3_path, target)
        click.echo(f"{target}: {(made.actual_start or 0) / 1000:.3f} to {(made.actual_end or 0) / 1000:.3f} s")

    run(work())


@command.command("text", epilog="\b\nExample:\n  callsheet video text 0199f0c2-… --format csv > text.csv")
@click.argument("video_id")
@settings(VIDEO_TEXT)
def text(video_id: str, format: str, **given: Any) -> None:
    """Print a video's text with its times."""

    async def work() -> None:
        async with _opened(given) as app:
            video = await _found(app, video_id)
            segments = await (await app.catalog()).segments_of(video.video_id, SERVICE)
        for part in WRITERS[format](map(as_range, segments)):  # type: ignore[index] # the choices of the flag
            click.echo(part, nl=False)

    run(work())


@contextlib.asynccontextmanager
async def _opened(given: dict[str, Any]) -> AsyncIterator[Callsheet]:
    check_url(given["database_url"])
    places = Places(given["database_url"], None, given.get("objects_url"), given["catalog_url"])
    app = add_builtin(places.apply_to(Callsheet(given["database_url"])))
    app.objects_url = app.objects_url or beside(app.database_url)
    await app.migrate()
    async with app:
        yield app


async def _found(app: Callsheet, video_id: str) -> Video:
    found = await (await app.catalog()).video(video_id, SERVICE) if IS_UUID(video_id) else None
    if found is None:
        raise Told(f"no video {video_id}; callsheet video list shows them")
    return found


async def _added(app: Callsheet, path: Path, given: dict[str, Any]) -> str:
    """Keep the file, enter the video, create its first job."""
    catalog, objects, video_id = await app.catalog(), await app.objects(), new_id()
    options = {"languages": list(given["languages"])} if given["languages"] else {}
    video = Video(
        video_id,
        given["owner"] or "",
        given["team"],
        given["title"] or path.name,
        VideoStatus.UPLOADING,
        paths.original(video_id),
        size_bytes=path.stat().st_size,  # noqa: ASYNC240 - one look
        options=json.dumps(options),
    )
    with _bar() as bar:
        shown = bar.add_task(escape(path.name), total=100, stage="keeping")
        kept = await objects.put_file(
            video.s3_original_path,
            path,
            content_type="video/mp4",
            progress=lambda done, whole: bar.update(shown, completed=100 * done / max(1, whole)),
        )
        bar.remove_task(shown)
    await catalog.add_video(video._replace(size_bytes=kept.info.size_bytes))
    await (await app.engine()).enqueue([start_job(video_id, video.owner_id)])
    await catalog.queue(video_id)
    return video_id


async def _worked(app: Callsheet, ids: Sequence[str], names: Sequence[str], *, quiet: bool) -> None:
    """Run a worker until all of these are over, with a bar for each."""
    worker = app.worker(concurrency=2)
    running = asyncio.create_task(worker.run())
    try:
        with _bar(disable=quiet) as bar:
            watching = [_watched(app, bar, each, name) for each, name in zip(ids, names, strict=True)]
            await asyncio.gather(*watching)
    finally:
        worker.stop()
        await running


async def _watched(app: Callsheet, bar: bars.Progress, video_id: str, name: str) -> None:
    engine, catalog = await app.engine(), await app.catalog()
    shown = bar.add_task(escape(name), total=100 * len(PIPELINE), stage="queued")
    async for far in follow(engine, catalog, video_id):
        _update(bar, shown, far)


def _update(bar: bars.Progress, shown: bars.TaskID, far: Far) -> None:
    stage = next(reversed(far.stages), "queued")
    done = 100.0 * len(PIPELINE) if far.video.status is VideoStatus.READY else sum(far.stages.values())
    bar.update(shown, completed=done, stage=far.video.status.value if far.is_over else stage)


def _bar(*, disable: bool = False) -> bars.Progress:
    stage = bars.text("[blue]{task.fields[stage]:<13}[/]")
    columns = (bars.text("{task.description}"), stage, bars.bar(), bars.percent, bars.elapsed)
    return bars.Progress(*columns, console=console(stderr=True), disable=disable)


async def _cut(app: Callsheet, video: Video, span: tuple[int, int], padding_ms: int) -> Clip:
    catalog, engine, clip_id = await app.catalog(), await app.engine(), new_id()
    new = clip_job(video.video_id, clip_id, span, padding_ms, video.owner_id)
    path = paths.clip(video.video_id, clip_id)
    await catalog.add_clip(
        Clip(clip_id, video.video_id, video.owner_id, video.team_id, new.job_id, *span, padding_ms, path)
    )
    await engine.enqueue([new])
    worker = app.worker(concurrency=1)
    running = asyncio.create_task(worker.run())
    try:
        async for _ in engine.watch(new.job_id):
            pass
    finally:
        worker.stop()
        await running
    job = await engine.get(new.job_id)
    made = await catalog.clip(clip_id, SERVICE)
    if job.status is not Status.SUCCEEDED or made is None:
        raise Told(f"the clip could not be cut: {json.loads(job.error or '{}').get('message', job.status.value)}")
    return made


def _show(videos: Sequence[Video], *, as_json: bool) -> None:
    if as_json:
        print_json([video._asdict() for video in videos])
        return
    rows = table("id", "title", "status", "length", "size")
    for video in videos:
        length = f"{video.duration_ms / 1000:.1f} s" if video.duration_ms else ""
        size = f"{video.width}x{video.height}" if video.width else ""
        style = STYLES.get(video.status, "cyan")
        rows.add_row(video.video_id, escape(video.title), f"[{style}]{video.status.value}[/]", length, size)
    console().print(rows)


def _line(hit: Hit) -> Text:
    """A hit with what met the query set off."""
    line = Text(f"{hit.video_id[-NARROW:]} {hit.t_start / 1000:9.3f}–{hit.t_end / 1000:<9.3f} ")
    start = len(line)
    line.append(hit.text)
    for mark in hit.marks:
        line.stylize("bold yellow", start + mark.start, start + mark.end)
    line.append(f"  {hit.title}", style="dim")
    return line
