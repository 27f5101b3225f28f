"""The tasks of the test-kit as an app: `callsheet testkit worker -- callsheet worker tests.remote.kit_app:app`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from callsheet import Callsheet, Context, Fatal

app = Callsheet("sqlite::memory:")


@app.task(queue="testkit")
async def echo(ctx: Context, n: int, text: str = "", deep: list[Any] | None = None) -> Any:
    """Return the payload unchanged."""
    return json.loads(ctx.job.payload)


@app.task(queue="testkit")
async def fail(message: str, retryable: bool = True) -> None:  # noqa: FBT001, FBT002 - a payload's field
    """Fail as asked."""
    if not retryable:
        raise Fatal(message)
    raise RuntimeError(message)


@app.task(queue="testkit")
async def sleep(seconds: float) -> dict[str, float]:
    """Take a while."""
    await asyncio.sleep(seconds)
    return {"slept": seconds}
