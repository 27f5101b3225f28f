"""The contract's task: fetch a source, transcode it, upload the outputs, in the contract's stages.

Each stage and its callback are written in one settlement; every error gets a code of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

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
from callsheet.worker.outages import outage_of
from callsheet.worker.signals import Fatal, Retry
from callsheet.worker.words import words_of

from ..attempts import telling, told  # noqa: TID252 - what contracts share
from .access import Access
from .download import Downloads, Refused
from .fetch import fetched
from .models import Output, Storage
from .places import Place, source_of, target_of
from .upload import uploaded

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.media.progress import Progress
    from callsheet.net.guard import Rules
    from callsheet.vault import Vault
    from callsheet.vault.refresh import Refresher

log = logging.getLogger("callsheet.transcode")
NAME, QUEUE = "transcode", "transcode"
MAX_SOURCE_BYTES = 100 * 1024**3
FETCHED, PROCESSED = 20.0, 90.0  # percent
RETRIED = frozenset({408, 423, 425, 429, 500, 502, 503, 504})
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


class TakesTasks(Protocol):
    """The part of `Callsheet` that this module needs; it cannot import `Callsheet`, which is a higher layer."""

    @property
    def task(self) -> Any:
        """Return the app's task decorator."""
        ...


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
        asked = Asked(source, output, outputs, source_storage or Storage(), output_storage or Storage())
        with told(ctx, outcome_of):
            return await _transcode(ctx, await parts(), asked, refresh_url)

    app.task(name=NAME, queue=QUEUE, retry="euterpe", timeout="24h", contract=EUTERPE.name)(transcode)


async def _transcode(ctx: Context, parts: Parts, asked: Asked, refresh_url: str) -> dict[str, Any]:
    access = Access(parts.vault, parts.refresher, ctx.job, refresh_url)
    await ctx.stage("fetching")
    taken = await fetched(ctx, parts, access, _place(source_of, asked.source), asked.source_storage)
    _ = ctx.progress(FETCHED)
    await ctx.stage("processing")
    how = Ffmpeg.default(start=ctx.children.start, is_stopped=lambda: ctx.cancelled)
    media = await probe(taken.path, start=ctx.children.start, caps=Caps(size_bytes=parts.max_source_bytes))
    folder = ctx.workspace / "outputs"
    folder.mkdir(mode=0o700)
    made = []
    for number, wanted in enumerate(asked.outputs):
        made.append(await make(media, wanted.spec, folder, how, _telling(ctx, number, len(asked.outputs))))
    taken.path.unlink()
    _ = ctx.progress(PROCESSED)
    await ctx.stage("uploading")
    outputs = await uploaded(ctx, parts, access, _place(target_of, asked.output), asked.output_storage, made)
    named = [{**out, "format": wanted.format} for out, wanted in zip(outputs, asked.outputs, strict=True)]
    source = {"bytes": taken.size_bytes, "sha256": taken.sha256, "duration_s": media.duration_s}
    return {"outputs": named, "source": source}


def _place(read: Callable[[str], Place], text: str) -> Place:
    """Parse a location in the payload; raises InvalidPayload, as another attempt would fail alike."""
    try:
        return read(text)
    except ValueError as error:
        raise InvalidPayload(str(error)) from None


def _telling(ctx: Context, number: int, count: int) -> Callable[[Progress], None]:
    """Return a progress callback for one of several outputs."""
    share = (PROCESSED - FETCHED) / count
    return telling(ctx, FETCHED + share * number, FETCHED + share * (number + 1))


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
            code = str(error.status) if error.status in RETRIED else error.code
            return Retry(str(error), code=code) if error.status in RETRIED else Fatal(str(error), code=code)
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
