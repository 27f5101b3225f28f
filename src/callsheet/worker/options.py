"""What a worker can be told: every one is a keyword of `Worker`, a flag and an environment variable."""

from __future__ import annotations

import asyncio
import itertools
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from callsheet.kernel.durations import Duration, seconds
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.identity import worker_identity

if TYPE_CHECKING:
    from callsheet.kernel.job import Job
    from callsheet.objects import OwnedObjects

MIN_LEASE_S = 1.0


class WorkerOptions(TypedDict, total=False):
    """The keywords of `Worker`."""

    queues: tuple[str, ...]
    concurrency: int
    lease: Duration
    prefetch: int
    drain: Duration
    grace: Duration
    poll: Duration
    task_patience: Duration
    worker_id: str
    workspaces: Path | None
    housekeeping: bool


_BOOT_ID = str(uuid.uuid4())
_NUMBERS = itertools.count(1)


def default_worker_id() -> str:
    """What contract 000 calls a worker: `POD_NAME`, else `HOSTNAME`, else an id that is new with each process."""
    return worker_identity(os.environ, _BOOT_ID)


def _identity() -> str:
    """The process's own; further workers of one process are told apart by a number after it."""
    number = next(_NUMBERS)
    return default_worker_id() if number == 1 else f"{default_worker_id()}-{number}"


@dataclass(frozen=True)
class Options:
    """Checked options. Durations are seconds or texts such as `10m`.

    `queues`: in order of preference; none means those of the app's tasks. `prefetch`: at most so many jobs wait in the
    worker for a free slot, and never more than it starts within a moment. `drain`: how long SIGTERM waits for running
    jobs. `grace`: how long a job that was told to stop may take to do so. `poll`: how long to sleep without a wake-up.
    `task_patience`: how long a job whose task is not here is handed on to other workers before it is a dead letter.
    `objects`: what makes the objects of a job; the app's own, not a keyword of `Worker`.
    """

    queues: tuple[str, ...] = ()
    concurrency: int = 10
    lease: Duration = 30.0
    prefetch: int = 2_000
    drain: Duration = 30.0
    grace: Duration = 10.0
    poll: Duration = 1.0
    task_patience: Duration = 600.0
    worker_id: str = field(default_factory=_identity)
    workspaces: Path | None = None
    housekeeping: bool = True
    objects: Callable[[Job, asyncio.AbstractEventLoop | None], OwnedObjects] | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InvalidInput("concurrency must be at least 1")
        if self.prefetch < 0:
            raise InvalidInput("prefetch must not be negative; 0 claims only what can start at once")
        if seconds(self.lease) < MIN_LEASE_S:
            raise InvalidInput(f"a lease must last at least {MIN_LEASE_S:g} s, else every pause is a crash")
        if isinstance(self.queues, str):
            raise InvalidInput("queues is a tuple of names: queues=('media', 'default')")
        seconds(self.drain), seconds(self.grace), seconds(self.poll), seconds(self.task_patience)
