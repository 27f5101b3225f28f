"""A worker of the gateway that the tests kill: `python -m tests.faults.gateway_crew URL`."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from callsheet import Callsheet, Context

app = Callsheet(sys.argv[1] if len(sys.argv) > 1 and "://" in sys.argv[1] else "sqlite::memory:")


@app.task(max_attempts=50)
async def chat(ctx: Context, n: int) -> int:
    """A few tokens, with a little waiting between them, so that kills fall everywhere."""
    for word in range(n % 4):
        ctx.emit("token", text=f"{n}.{word}")
        await asyncio.sleep(0.002)
    return n


async def main() -> None:
    """Work until killed."""
    async with app:
        await app.worker(lease=4.0, concurrency=4, poll=0.2).run()


if __name__ == "__main__":
    uvloop.run(main())
