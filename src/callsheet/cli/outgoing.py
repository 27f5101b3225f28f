"""The deliverer of webhooks in this process, as flags and environment set it up."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from callsheet.app.sealing import sealer_from
from callsheet.net.guard import Rules, networks
from callsheet.outbox import Deliveries, DeliveryOptions, Endpoints

from .failures import WrongInput

if TYPE_CHECKING:
    from callsheet.engine import Engine

    from .hosting import Flags
    from .worker import Flags as WorkerFlags

MAX_PORT = 65_535


class Outgoing(NamedTuple):
    """Endpoints, and what delivers to them; None where other processes do."""

    endpoints: Endpoints
    deliveries: Deliveries | None

    @classmethod
    def of(cls, engine: Engine, flags: Flags) -> Outgoing:
        """As the flags say; raises WrongInput, InvalidKeyring."""
        endpoints = Endpoints(engine.store, sealer_from(os.environ), webhook_rules(flags))
        options = DeliveryOptions(batch=flags.webhook_batch, concurrency=flags.webhook_concurrency)
        return cls(endpoints, Deliveries(engine, endpoints, options) if flags.webhooks == "on" else None)

    async def run(self) -> None:
        """Deliver until stopped."""
        if self.deliveries is not None:
            await self.deliveries.run()

    def stop(self) -> None:
        """Take nothing more. May be called twice."""
        if self.deliveries is not None:
            self.deliveries.stop()


def webhook_rules(flags: Flags | WorkerFlags) -> Rules:
    """What webhooks may reach; raises WrongInput, InvalidInput."""
    return rules_of(flags.webhook_networks, flags.webhook_ports, http=flags.webhook_http)


def storage_rules(flags: Flags | WorkerFlags) -> Rules:
    """Where storages and sources may be that requests name: as for webhooks, unless a setting of their own is given."""
    if not (flags.storage_http or flags.storage_networks or flags.storage_ports):
        return webhook_rules(flags)
    return rules_of(flags.storage_networks, flags.storage_ports, http=flags.storage_http, whose="storage")


def rules_of(opened: Sequence[str] | None, ports: Sequence[str] | None, *, http: bool, whose: str = "webhook") -> Rules:
    """Rules as their settings say; raises WrongInput, InvalidInput."""
    wrong = [port for port in ports or () if not port.isdecimal() or not 0 < int(port) <= MAX_PORT]
    if wrong:
        raise WrongInput(f"{wrong[0]!r} is no port; write --{whose}-ports 443,9443")
    return Rules(http, networks(opened or ()), frozenset(map(int, ports)) if ports else None)
