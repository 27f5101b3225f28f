"""A process that wraps credentials anew: `python -m tests.vault.walker URL KEYS_FILE BATCH`.

It prints a line per batch and reads a line before the next batch.
"""

from __future__ import annotations

import asyncio
import sys

from callsheet.engine import Engine
from callsheet.vault import Vault
from callsheet.vault.local import FileKeyring
from callsheet.vault.rewrap import Progress, rewrap


def tell(progress: Progress) -> None:
    sys.stdout.write(f"{progress.wrapped} {progress.total}\n")
    sys.stdout.flush()
    sys.stdin.readline()


async def main() -> None:
    async with Engine.from_url(sys.argv[1]) as engine, Vault(engine.store, FileKeyring(sys.argv[2])) as vault:
        await rewrap(vault, tell, batch=int(sys.argv[3]))


if __name__ == "__main__":
    asyncio.run(main())
