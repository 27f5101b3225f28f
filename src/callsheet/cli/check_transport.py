"""What the doctor looks at in the transport. It is only a hint: without it work goes on, so that little is broken."""

from __future__ import annotations

import asyncio
import time

from callsheet.kernel.errors import CallsheetError, StoreUnavailable
from callsheet.store import store_from_url

from .findings import Finding, bad, good, warning
from .passwords import without_password

PATIENCE_S = 5.0


async def check_transport(database_url: str, redis_url: str | None) -> list[Finding]:
    """One finding; none where no transport is set up."""
    if not redis_url:
        return []
    shown = without_password(redis_url)
    try:
        if store_from_url(database_url).streams:
            return [warning("transport", "the store is Redis itself and needs no other", "unset CALLSHEET_REDIS_URL")]
        async with asyncio.timeout(PATIENCE_S):
            return [await _look(redis_url, shown)]
    except ModuleNotFoundError as error:
        return [bad("transport", f"the driver is missing ({error.name})", "pip install 'callsheet[redis]'")]
    except (StoreUnavailable, TimeoutError) as error:
        told = str(error) or f"no answer within {PATIENCE_S:g} s"
        return [warning("transport", f"{shown}: {told}", "jobs are found by polling until it is back")]
    except CallsheetError as error:
        return [bad("transport", f"{shown}: {error}", "see --redis-url and CALLSHEET_REDIS_URL")]


async def _look(redis_url: str, shown: str) -> Finding:
    from callsheet.engine.transport.wire import Wire  # noqa: PLC0415 - its driver is an extra

    wire = Wire(redis_url)
    try:
        version = await wire.version()
        begun = time.perf_counter()
        streams = await wire.lengths()
        took_ms = (time.perf_counter() - begun) * 1000
    finally:
        await wire.close()
    messages = f"{sum(streams.values())} messages in {len(streams)} streams"
    return good("transport", f"{shown}, Redis {version}, {took_ms:.2f} ms, {messages}")
