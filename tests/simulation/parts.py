"""The real parts of the program, put together for one process of a world: a worker, a deliverer, a housekeeper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from callsheet.engine import Engine
from callsheet.engine.housekeeping import Housekeeping
from callsheet.net.guard import Rules
from callsheet.net.guarded_client import GuardedClient
from callsheet.outbox.deliver import Deliveries
from callsheet.outbox.endpoints import Endpoints
from callsheet.outbox.shares import DeliveryOptions
from callsheet.worker.disk import Usage
from callsheet.worker.runner import Worker

from .loop import NODE
from .process import Process
from .tasks import DEFINITIONS
from .wire import Wire

if TYPE_CHECKING:
    from callsheet.store.protocol import Store
    from callsheet.worker.definition import Definition

    from .world import World

LEASE_S = 6.0
RULES = Rules()
NOWHERE = Path("/nowhere/at/all")
TERABYTE = 10**12
ROOT = f"{Path(__file__).parents[2]}/"  # stands in tracebacks


class Sealer:
    """Seals nothing: what it is given comes back."""

    async def seal(self, plain: str, *, owner: str, requester_id: str) -> str:
        """Return the same text."""
        return plain

    async def open(self, sealed: str, *, owner: str, requester_id: str) -> str:
        """Return the same text."""
        return sealed


@dataclass
class Source:
    """A worker's job source."""

    its_engine: Engine
    database_url: str = "sqlite::memory:"

    @property
    def definitions(self) -> Mapping[str, Definition]:
        """Return the simulation's tasks."""
        return DEFINITIONS

    async def register(self) -> None:
        """Register nothing: the simulated stores have no server that asks."""

    async def engine(self) -> Engine:
        """Return this process' engine."""
        return self.its_engine

    def objects_of(self, *_: Any) -> Any:
        """No task asks for objects."""
        raise NotImplementedError


def engine_of(world: World, process: Process) -> Engine:
    """Return an engine at this process's end of the wire."""
    return Engine(cast("Store", Wire(world, process)))


async def work(world: World, process: Process) -> None:
    """Run a worker until it is stopped."""
    worker = process.part = Worker(
        Source(engine_of(world, process)),
        worker_id=process.name,
        concurrency=world.chance.randint(1, 4),
        prefetch=world.chance.choice((0, 20, 200)),
        lease=LEASE_S,
        poll=1.0,
        drain=world.chance.choice((0.5, 5.0)),
        grace=1.0,
        housekeeping=world.chance.random() < 0.2,
        workspaces=NOWHERE,
    )
    await worker.run()


async def keep_house(world: World, process: Process) -> None:
    """Run the housekeeping until it is stopped."""
    process.part = Housekeeping(engine_of(world, process))
    await process.part.run()


async def deliver(world: World, process: Process) -> None:
    """Run a deliverer until it is stopped."""
    engine = engine_of(world, process)
    endpoints = Endpoints(engine.store, Sealer(), RULES)
    deliveries = process.part = Deliveries(
        engine, endpoints, DeliveryOptions(lease_ms=12_000), client=cast("GuardedClient", world.receiver)
    )
    deliveries._name = process.name
    await deliveries.run()


MAINS = {"worker": work, "keeper": keep_house, "deliverer": deliver}


def usage_of_disk(folder: Path) -> Usage:
    """Return the usage of the disk of the process that asks."""
    node = NODE.get()
    is_full = isinstance(node, Process) and node.full_since is not None
    return Usage(TERABYTE, 0 if is_full else TERABYTE // 2)


def told(value: Any) -> str:
    """Return arguments as text that is the same in every process and folder: sets are sorted, paths of code short."""
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(told, value)))}}}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(told, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {told(item)}' for key, item in value.items())}}}"
    return str(value).replace(ROOT, "")
