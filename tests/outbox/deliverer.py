"""A deliverer program: `python -m tests.outbox.deliverer STORE_URL KEYS`."""

from __future__ import annotations

import asyncio
import sys

from callsheet.app.sealing import VaultSealer
from callsheet.engine import Engine
from callsheet.outbox import Deliveries, Endpoints
from callsheet.vault.local import LocalKeyring
from tests.outbox.kit import FAST
from tests.outbox.sink import RULES


async def main(url: str, keys: str) -> None:
    async with Engine.from_url(url) as engine:
        endpoint_registry = Endpoints(engine.store, VaultSealer(LocalKeyring.from_text(keys)), RULES)
        async with Deliveries(engine, endpoint_registry, FAST._replace(lease_ms=1_000)):
            print("ready", flush=True)  # noqa: T201 - for who started it
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
