"""The options of a worker: each is a keyword of `Worker`, a flag and an environment variable."""

from __future__ import annotations

import asyncio
import itertools
import os
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from callsheet.kernel.durations import Duration, seconds
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.workers import worker_identity

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
    """Return contract 000's worker identity: `POD_NAME`, else `HOSTNAME`, else a random id per process."""
    return worker_identity(os.environ, _BOOT_ID)


def _identity() -> str:
    """Return the process's worker id; further workers in the process get a number as suffix."""
    number = next(_NUMBERS)
    return default_worker_id() if number == 1 else f"{default_worker_id()}-{number}"


@dataclass(frozen=True)
class Options:
    """Checked options. Durations are seconds or texts such as `10m`.

    `queues`: queue names in order of preference; empty selects the queues of the app's tasks. `prefetch`: the maximum
    number of claimed jobs that wait for a free slot; jobs that cannot start within a moment are not claimed ahead.
    `drain`: the time that SIGTERM waits for running jobs. `grace`: the time limit for a stopped job to end. `poll`: the
    longest sleep without a wake-up. `task_patience`: the time during which a job of an unknown task is handed on to
    other workers before its dead letter. `objects` makes the objects of a job, `register` tells the store of the
    program's tasks and schedules; both are set by the app, no keywords of `Worker`.
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
    register: Callable[[], Awaitable[None]] | None = None

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
