"""`callsheet video`: adds videos, searches the text on screen, cuts clips. No server is needed."""

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
from callsheet.contracts.cortana.jobs import PIPELINE, Far, clip_job, follow, start_job
from callsheet.contracts.cortana.watching import as_range
from callsheet.engine.ids import new_id
from callsheet.kernel.durations import milliseconds
from callsheet.kernel.job import Status
from callsheet.kernel.new_jobs import IS_UUID
from callsheet.media.reading.exports import WRITERS

from . import logs
from .apps import Places
from .command_settings import VIDEO_ADD, VIDEO_CLIP, VIDEO_LIST, VIDEO_SEARCH, VIDEO_TEXT
from .drawing import Text as StyledText
from .drawing import escape
from .errors import CommandFailed, WrongInput, check_url
from .open_store import run
from .options import settings
from .output import console, print_json, table
from .progress_view import Progress, Row, bar, elapsed, percent
from .progress_view import text as column

STYLES = {VideoStatus.READY: "green", VideoStatus.FAILED: "red", VideoStatus.PROCESSING: "blue"}
ID_END = 8  # so many last characters of an id are printed


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
    """Add videos, search the text on screen in them, cut clips.

    The jobs run in this process; with --detach, in workers elsewhere on the same store.
    """
    logs.set_up("human", "warning")


@command.command("add", epilog="\b\nExample:\n  callsheet video add talk.mp4 --title 'The talk'")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@settings(VIDEO_ADD)
def add(files: tuple[Path, ...], **arguments: Any) -> None:
    """Add videos and make their text searchable. After Ctrl-C, the same command or a worker goes on."""
    if missing := [path for path in files if not path.is_file()]:
        raise WrongInput(f"{missing[0]} is no file")

    async def work() -> None:
        async with _open_app(arguments) as app:
            ids = [await _add_video(app, path, arguments) for path in files]
            if not arguments["detach"]:
                await _process(app, ids, [path.name for path in files], quiet=arguments["json"])
            catalog = await app.catalog()
            videos = [video for each in ids if (video := await catalog.video(each, SERVICE)) is not None]
        _show(videos, as_json=arguments["json"])
        failures = [video for video in videos if video.status is VideoStatus.FAILED]
        if failures:
            error = json.loads(failures[0].error or "{}")
            raise CommandFailed(f"{failures[0].title}: {error.get('message', 'it failed')}")

    run(work())


@command.command("list", epilog="\b\nExample:\n  callsheet video list --json")
@settings(VIDEO_LIST)
def list_(limit: int, **arguments: Any) -> None:
    """Show the videos, newest first."""

    async def work() -> None:
        async with _open_app(arguments) as app:
            videos = await (await app.catalog()).videos(VideoPage(limit), SERVICE)
        if not videos and not arguments["json"]:
            click.echo("no videos yet; callsheet video add FILE")
        else:
            _show(videos, as_json=arguments["json"])

    run(work())


@command.command("search", epilog="\b\nExample:\n  callsheet video search quarterly revenue")
@click.argument("words", nargs=-1, required=True)
@settings(VIDEO_SEARCH)
def search(words: tuple[str, ...], mode: str, video: Sequence[str], limit: int, **arguments: Any) -> None:
    """Find text that was on screen: words, "phrases", and -word for text without a word."""

    async def work() -> None:
        async with _open_app(arguments) as app:
            query = Query(" ".join(words), mode, tuple(video or ()), limit=limit)
            page = await (await app.catalog()).search(query, SERVICE)
        if arguments["json"]:
            print_json([{**hit._asdict(), "marks": [mark._asdict() for mark in hit.marks]} for hit in page.hits])
            return
        out = console()
        for hit in page.hits:
            out.print(_line(hit))
        more = "" if page.total_is_exact else "+"
        out.print(f"{page.total}{more} found" if page.hits else "nothing found; try --mode substring, or fewer words")

    run(work())


@command.command("clip", epilog="\b\nExample:\n  callsheet video clip 0199f0c2-… 12.5 20 --padding 1s --output cut.mp4")
@click.argument("video_id")
@click.argument("start", type=float)
@click.argument("end", type=float)
@settings(VIDEO_CLIP)
def clip(video_id: str, start: float, end: float, **arguments: Any) -> None:
    """Cut a clip from START to END, in seconds, exact to the frame, and write it to a file."""
    if end <= start:
        raise WrongInput("END must be after START")

    async def work() -> None:
        async with _open_app(arguments) as app:
            video = await _find_video(app, video_id)
            cut = await _cut(app, video, (round(start * 1000), round(end * 1000)), milliseconds(arguments["padding"]))
            target = Path(arguments["output"] or f"{cut.clip_id}.mp4")
            await (await app.objects()).get_file(cut.s3_path, target)
        click.echo(f"{target}: {(cut.actual_start or 0) / 1000:.3f} to {(cut.actual_end or 0) / 1000:.3f} s")

    run(work())


@command.command("text", epilog="\b\nExample:\n  callsheet video text 0199f0c2-… --format csv > text.csv")
@click.argument("video_id")
@settings(VIDEO_TEXT)
def text(video_id: str, format: str, **arguments: Any) -> None:
    """Print the text of a video with the times when it is on screen."""

    async def work() -> None:
        async with _open_app(arguments) as app:
            video = await _find_video(app, video_id)
            segments = await (await app.catalog()).segments_of(video.video_id, SERVICE)
        for part in WRITERS[format](map(as_range, segments)):  # type: ignore[index] # the choices of the flag
            click.echo(part, nl=False)

    run(work())


@contextlib.asynccontextmanager
async def _open_app(arguments: dict[str, Any]) -> AsyncIterator[Callsheet]:
    check_url(arguments["database_url"])
    places = Places(arguments["database_url"], None, arguments.get("objects_url"), arguments["catalog_url"])
    app = add_builtin(places.apply_to(Callsheet(arguments["database_url"])))
    app.objects_url = app.objects_url or app.default_objects_url()
    await app.migrate()
    async with app:
        yield app


async def _find_video(app: Callsheet, video_id: str) -> Video:
    video = await (await app.catalog()).video(video_id, SERVICE) if IS_UUID(video_id) else None
    if video is None:
        raise CommandFailed(f"no video {video_id}; callsheet video list shows them")
    return video


async def _add_video(app: Callsheet, path: Path, arguments: dict[str, Any]) -> str:
    """Store the file, add the video to the catalogue, create its first job; return the video's id."""
    catalog, objects, video_id = await app.catalog(), await app.objects(), new_id()
    options = {"languages": list(arguments["languages"])} if arguments["languages"] else {}
    video = Video(
        video_id,
        arguments["owner"] or "",
        arguments["team"],
        arguments["title"] or path.name,
        VideoStatus.UPLOADING,
        paths.original(video_id),
        size_bytes=path.stat().st_size,  # noqa: ASYNC240 - one look
        options=json.dumps(options),
    )
    with _progress() as progress:
        row = progress.add(escape(path.name), total=100, stage="storing")
        stored = await objects.put_file(
            video.s3_original_path,
            path,
            content_type="video/mp4",
            progress=lambda done, whole: row.update(completed=100 * done / max(1, whole)),
        )
        progress.remove(row)
    await catalog.add_video(video._replace(size_bytes=stored.info.size_bytes))
    await (await app.engine()).enqueue([start_job(video_id, video.owner_id)])
    await catalog.queue(video_id)
    return video_id


async def _process(app: Callsheet, ids: Sequence[str], names: Sequence[str], *, quiet: bool) -> None:
    """Run a worker until all these videos are ready or have failed, with a bar for each."""
    async with _running_worker(app, concurrency=2):
        with _progress(disable=quiet) as progress:
            await asyncio.gather(*(_follow(app, progress, each, name) for each, name in zip(ids, names, strict=True)))


@contextlib.asynccontextmanager
async def _running_worker(app: Callsheet, concurrency: int) -> AsyncIterator[None]:
    worker = app.worker(concurrency=concurrency)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await task


async def _follow(app: Callsheet, progress: Progress, video_id: str, name: str) -> None:
    engine, catalog = await app.engine(), await app.catalog()
    row = progress.add(escape(name), total=100 * len(PIPELINE), stage="queued")
    async for far in follow(engine, catalog, video_id):
        _update(row, far)


def _update(row: Row, far: Far) -> None:
    stage = next(reversed(far.stages), "queued")
    completed = 100.0 * len(PIPELINE) if far.video.status is VideoStatus.READY else sum(far.stages.values())
    row.update(completed=completed, stage=far.video.status.value if far.is_over else stage)


def _progress(*, disable: bool = False) -> Progress:
    columns = (column("{row.description}"), column("[blue]{row.fields[stage]:<13}[/]"), bar(), percent, elapsed)
    return Progress(*columns, console=console(stderr=True), disable=disable)


async def _cut(app: Callsheet, video: Video, span: tuple[int, int], padding_ms: int) -> Clip:
    catalog, engine, clip_id = await app.catalog(), await app.engine(), new_id()
    new = clip_job(video.video_id, clip_id, span, padding_ms, video.owner_id)
    path = paths.clip(video.video_id, clip_id)
    await catalog.add_clip(
        Clip(clip_id, video.video_id, video.owner_id, video.team_id, new.job_id, *span, padding_ms, path)
    )
    await engine.enqueue([new])
    async with _running_worker(app, concurrency=1):
        async for _ in engine.watch(new.job_id):
            pass
    job = await engine.get(new.job_id)
    cut = await catalog.clip(clip_id, SERVICE)
    if job.status is not Status.SUCCEEDED or cut is None:
        raise CommandFailed(
            f"the clip could not be cut: {json.loads(job.error or '{}').get('message', job.status.value)}"
        )
    return cut


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


def _line(hit: Hit) -> StyledText:
    """Return a line for a search hit, with the matching words highlighted."""
    line = StyledText(f"{hit.video_id[-ID_END:]} {hit.t_start / 1000:9.3f}–{hit.t_end / 1000:<9.3f} ")
    start = len(line)
    line.append(hit.text)
    for mark in hit.marks:
        line.stylize("bold yellow", start + mark.start, start + mark.end)
    line.append(f"  {hit.title}", style="dim")
    return line
