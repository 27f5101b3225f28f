"""Transcoding for an app: the contract's task, on the app's store, vault and guarded network access."""

from __future__ import annotations

import asyncio
import os
import weakref
from typing import TYPE_CHECKING

from callsheet.contracts.euterpe.access import sender
from callsheet.contracts.euterpe.download import Downloads
from callsheet.contracts.euterpe.tasks import MAX_SOURCE_BYTES, Parts, add_task
from callsheet.net.guard import Rules
from callsheet.net.guarded_client import GuardedClient
from callsheet.outbox import Endpoints
from callsheet.vault import Vault, keyring_from
from callsheet.vault.refresh import Refresher

from .sealing import sealer_from

if TYPE_CHECKING:
    from .application import Callsheet


def add_transcoding(
    app: Callsheet,
    rules: Rules | None = None,
    *,
    storage: Rules | None = None,
    max_source_bytes: int = MAX_SOURCE_BYTES,
) -> None:
    """Declare the task `transcode`.

    `rules` restrict the addresses of refresh URLs; `storage` restricts source URLs and storage endpoints, by default
    with the same rules.
    """
    parts_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Parts] = weakref.WeakKeyDictionary()

    async def parts() -> Parts:
        loop = asyncio.get_running_loop()
        if loop not in parts_by_loop:
            new_parts = await _parts(app, rules or Rules(), storage or rules or Rules())
            parts_by_loop.setdefault(loop, new_parts._replace(max_source_bytes=max_source_bytes))
        return parts_by_loop[loop]

    add_task(app, parts)


async def _parts(app: Callsheet, rules: Rules, storage: Rules) -> Parts:
    engine = await app.engine()
    vaults: list[Vault] = []
    refreshers: list[Refresher] = []

    def vault() -> Vault:
        if not vaults:
            vaults.append(Vault(engine.store, keyring_from(os.environ)))
        return vaults[0]

    def refresher() -> Refresher:
        if not refreshers:
            endpoints = Endpoints(engine.store, sealer_from(os.environ), rules)
            refreshers.append(Refresher(engine, vault(), sender(endpoints, GuardedClient(rules))))
        return refreshers[0]

    return Parts(engine, vault, refresher, Downloads(storage), storage)
