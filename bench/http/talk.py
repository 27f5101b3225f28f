"""How the helper programs are asked: a line of JSON in, a line of JSON out. They import nothing that is measured."""

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
    """Do what is asked, in order, until nobody asks any more."""
    gc.disable()  # a pause of ours would be told as one of the server's
    uvloop.run(_answer(verbs))


async def _answer(verbs: Verbs) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        print(json.dumps(await verbs[asked.pop("do")](**asked)), flush=True)
        gc.collect()


def ranks(values: list[float]) -> dict[str, float]:
    """Percentiles of seconds, in milliseconds; none of nothing."""
    ranked = sorted(values)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    return {name: 1000 * ranked[min(len(ranked) - 1, int(share * len(ranked)))] for name, share in shares.items()}
