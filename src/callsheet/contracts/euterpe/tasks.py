"""The contract's task: fetch a source, transcode it, upload the outputs, in the contract's stages.

Each stage and its callback are written in one settlement; every error gets a code of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.kernel.contracts import EUTERPE
from callsheet.kernel.errors import CallsheetError, InvalidPayload, Outage, StoreError
from callsheet.media.errors import FfmpegMissing, MediaError
from callsheet.media.ffmpeg import Ffmpeg
from callsheet.media.probe import Caps, probe
from callsheet.media.transcode import transcode as make
from callsheet.objects.errors import (
    ObjectNotOwned,
    ObjectsError,
    ObjectsForbidden,
    ObjectTooLarge,
    UnknownObjects,
)
from callsheet.vault.errors import CredentialRejected, NoKeyring, RefreshFailed, UnknownKek
from callsheet.worker.context import Context
from callsheet.worker.outages import outage_of, words_of
from callsheet.worker.pipeline import TakesTasks
from callsheet.worker.signals import Fatal, Retry

from ..attempts import errors_as_outcomes, progress_within  # noqa: TID252 - what contracts share
from .access import Access
from .download import Downloads, Refused
from .fetch import fetch
from .locations import Place, source_of, target_of
from .models import Output, Storage
from .upload import upload

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.media.progress import Progress
    from callsheet.net.guard import Rules
    from callsheet.vault import Vault
    from callsheet.vault.refresh import Refresher

log = logging.getLogger("callsheet.transcode")
NAME, QUEUE = "transcode", "transcode"
MAX_SOURCE_BYTES = 100 * 1024**3
FETCH_PERCENT, PROCESS_PERCENT = 20.0, 90.0  # percent
RETRIED_STATUSES = frozenset({408, 423, 425, 429, 500, 502, 503, 504})
SLOW_DOWN = frozenset({"SlowDown", "TooManyRequests", "RequestLimitExceeded"})
# errors that another worker, or a later attempt, may avoid
AGAIN = (RefreshFailed, NoKeyring, UnknownKek, StoreError, FfmpegMissing, UnknownObjects)


class Parts(NamedTuple):
    """The engine parts of the task. Only jobs with credentials use `vault` and `refresher`."""

    engine: Engine
    vault: Callable[[], Vault]
    refresher: Callable[[], Refresher]
    downloads: Downloads
    rules: Rules
    max_source_bytes: int = MAX_SOURCE_BYTES


class Asked(NamedTuple):
    """A transcoding job's payload."""

    source: str
    output: str
    outputs: list[Output]
    source_storage: Storage
    output_storage: Storage


def add_task(app: TakesTasks, parts: Callable[[], Awaitable[Parts]]) -> None:
    """Declare `transcode` on an app; each attempt calls `parts`."""

    async def transcode(  # noqa: PLR0913 - the payload, key by key
        ctx: Context,
        source: str,
        output: str,
        outputs: list[Output],
        *,
        source_storage: Storage | None = None,
        output_storage: Storage | None = None,
        refresh_url: str = "",
        status_webhook_url: str = "",  # noqa: ARG001 - the kernel reads it at every move
        metadata: dict[str, str] | None = None,  # noqa: ARG001 - likewise
    ) -> dict[str, Any]:
        order = Asked(source, output, outputs, source_storage or Storage(), output_storage or Storage())
        with errors_as_outcomes(ctx, outcome_of):
            return await _transcode(ctx, await parts(), order, refresh_url)

    app.task(name=NAME, queue=QUEUE, retry="euterpe", timeout="24h", contract=EUTERPE.name)(transcode)


async def _transcode(ctx: Context, parts: Parts, order: Asked, refresh_url: str) -> dict[str, Any]:
    access = Access(parts.vault, parts.refresher, ctx.job, refresh_url)
    await ctx.stage("fetching")
    source_file = await fetch(ctx, parts, access, _place(source_of, order.source), order.source_storage)
    _ = ctx.progress(FETCH_PERCENT)
    await ctx.stage("processing")
    how = Ffmpeg.default(start=ctx.children.start, is_stopped=lambda: ctx.cancelled)
    media = await probe(source_file.path, start=ctx.children.start, caps=Caps(size_bytes=parts.max_source_bytes))
    folder = ctx.workspace / "outputs"
    folder.mkdir(mode=0o700)
    files = []
    for number, wish in enumerate(order.outputs):
        files.append(await make(media, wish.spec, folder, how, _telling(ctx, number, len(order.outputs))))
    source_file.path.unlink()
    _ = ctx.progress(PROCESS_PERCENT)
    await ctx.stage("uploading")
    outputs = await upload(ctx, parts, access, _place(target_of, order.output), order.output_storage, files)
    result = [{**out, "format": wish.format} for out, wish in zip(outputs, order.outputs, strict=True)]
    source = {"bytes": source_file.size_bytes, "sha256": source_file.sha256, "duration_s": media.duration_s}
    return {"outputs": result, "source": source}


def _place(read: Callable[[str], Place], text: str) -> Place:
    """Parse a location in the payload; raises InvalidPayload, as another attempt would fail alike."""
    try:
        return read(text)
    except ValueError as error:
        raise InvalidPayload(str(error)) from None


def _telling(ctx: Context, number: int, count: int) -> Callable[[Progress], None]:
    """Return a progress callback for one of several outputs."""
    share = (PROCESS_PERCENT - FETCH_PERCENT) / count
    return progress_within(ctx, FETCH_PERCENT + share * number, FETCH_PERCENT + share * (number + 1))


def outcome_of(error: Exception, attempt: int) -> Fatal | Retry | Outage:
    """Return the outcome of an error: wait for an outage, retry, or fail for good."""
    if (outage := outage_of(error)) is not None:
        return outage
    match error:
        case CallsheetError() if isinstance(error, AGAIN):
            return Retry(words_of(error), code=error.code)
        case MediaError():
            again = error.retry_after(attempt)
            return Retry(str(error), code=error.code) if again else Fatal(str(error), code=error.code)
        case ObjectsError():
            return _of_storage(error)
        case Refused():
            code = str(error.status) if error.status in RETRIED_STATUSES else error.code
            return Retry(str(error), code=code) if error.status in RETRIED_STATUSES else Fatal(str(error), code=code)
        case CallsheetError():
            return Fatal(words_of(error), code=error.code)
    log.error("a transcoding attempt broke", exc_info=error)
    return Retry("something broke on our side; it was logged", code="internal")


def _of_storage(error: ObjectsError) -> Fatal | Retry:
    match error:
        case ObjectTooLarge():
            return Fatal(str(error), code="source_too_large")
        case ObjectNotOwned():
            return Fatal(str(error), code=error.code)
        case ObjectsForbidden():
            return Fatal(str(error), code=CredentialRejected.code)
    if error.provider_code in SLOW_DOWN:
        return Retry(str(error), code="429")
    return Retry(str(error), code=error.code) if error.retryable else Fatal(str(error), code=error.code)
