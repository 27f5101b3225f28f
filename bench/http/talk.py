"""The protocol of the helper programs: one line of JSON per request and per answer. Helpers import no measured code."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import uvloop

Verbs = Mapping[str, Callable[..., Awaitable[Any]]]


def answer(verbs: Verbs) -> None:
    """Answer requests in order until standard input ends."""
    gc.disable()  # a pause of ours would be told as one of the server's
    uvloop.run(_answer(verbs))


async def _answer(verbs: Verbs) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        print(json.dumps(await verbs[request.pop("do")](**request)), flush=True)
        gc.collect()


def ranks(values: list[float]) -> dict[str, float]:
    """Percentiles of seconds, in milliseconds; none of nothing."""
    in_order = sorted(values)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    return {name: 1000 * in_order[min(len(in_order) - 1, int(share * len(in_order)))] for name, share in shares.items()}
