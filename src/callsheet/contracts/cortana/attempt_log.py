"""Logs each attempt: two log lines and, if `keep_logs` is set, a small JSON object in the object store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from callsheet.kernel.errors import Outage
from callsheet.objects.owned import with_folders
from callsheet.vault.redact import redact
from callsheet.worker.context import Context
from callsheet.worker.signals import Fatal, Retry, Snooze

from . import paths
from .outcomes import type_of
from .parts import FindsParts

log = logging.getLogger("callsheet.video")
UPLOAD_S = 5.0
MESSAGE_LIMIT = 2_000


@contextlib.asynccontextmanager
async def attempt_log(ctx: Context, parts: FindsParts, video_id: str) -> AsyncIterator[None]:
    """Log the attempt's start and end. Errors of the logging itself never affect the job."""
    kind = ctx.job.kind.rpartition(".")[2]
    about = {"job_id": ctx.job_id, "video_id": video_id, "job_type": kind, "attempt": ctx.attempt}
    began = time.time()
    _write(about, "processing")
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        status = status_after(ctx, failure)
        ended_at = time.time()
        why = {} if failure is None or status == "processing" else {"error": _error(failure)}
        entry = {**about, **why, "started_at": _moment(began), "ended_at": _moment(ended_at)}
        _write({**about, **why, "took_ms": round((ended_at - began) * 1000)}, status)
        if status != "processing":  # while `processing`, another worker holds the job and writes this object
            await _keep(ctx, parts, {**entry, "status": status})


def status_after(ctx: Context, failure: BaseException | None) -> str:
    """Return the contract's status word for the job after this attempt."""
    if ctx.stop_reason is not None:
        status = {"lost": "processing", "shutdown": "queued", "cancel": "failed"}.get(ctx.stop_reason)
        if status is not None:
            return status
    if failure is None:
        return "done"
    if isinstance(failure, Snooze | Outage):
        return "queued"
    return "failed" if isinstance(failure, Fatal) or ctx.attempt >= ctx.job.max_attempts else "queued"


def _write(about: dict[str, Any], status: str) -> None:
    fields = {**about, "status": status}
    why = f", {about['error']['type']}: {about['error']['message']}" if "error" in about else ""
    message = f"{about['job_id']} {about['job_type']} of video {about['video_id']}: {status}{why}"
    log.info("%s", message, extra={"fields": fields})


async def _keep(ctx: Context, parts: FindsParts, entry: dict[str, Any]) -> None:
    key = paths.log(ctx.job_id)
    try:
        async with asyncio.timeout(UPLOAD_S):
            settings = await parts()
            if settings.keep_logs:
                raw = json.dumps(entry, ensure_ascii=False).encode()
                await with_folders(ctx.objects, [key]).put(key, raw, content_type="application/json")
    except Exception as error:  # noqa: BLE001 - a log that cannot be kept is no reason to fail
        log.warning("%s: its log could not be kept: %s", ctx.job_id, error)


def _error(failure: BaseException) -> dict[str, str]:
    kind = type_of(failure.code) if isinstance(failure, Fatal | Retry) else type(failure).__name__
    return {"type": kind, "message": redact(str(failure))[:MESSAGE_LIMIT]}


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
