"""`@app.cron` and `@app.every`: the schedules that a program declares at its tasks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from callsheet.engine.schedules import Schedule, check
from callsheet.kernel.durations import Duration, milliseconds

if TYPE_CHECKING:
    from .task import Task

A_DAY_MS = 86_400_000


class ScheduleOptions(TypedDict, total=False):
    """Options of `@app.cron` and `@app.every`. `name`: the task's name unless given; `arguments`: of each job.

    `missed`: what happens to slots that passed while no worker ran (`most` limits "all"). `overlap`: what happens to a
    slot while the job before has not ended.
    """

    name: str
    timezone: str
    arguments: Mapping[str, Any]
    missed: Literal["skip", "once", "all"]
    most: int
    overlap: Literal["queue", "skip", "cancel"]


def schedule_of(
    task: Task[..., Any], options: ScheduleOptions, *, cron: str = "", every: Duration | None = None
) -> Schedule:
    """Return the schedule of a task with the task's own options; raises InvalidInput or InvalidPayload."""
    new = task.new_job(**options.get("arguments", {}))
    schedule = Schedule(
        name=options.get("name", task.name),
        cron=cron,
        kind=new.kind,
        payload=new.payload,
        queue=new.queue,
        priority=new.priority,
        requester_id=new.requester_id,
        contract=new.contract,
        timezone=options.get("timezone", "UTC"),
        every_ms=0 if every is None else milliseconds(every),
        max_attempts=new.max_attempts,
        retry=new.retry,
        ttl_s=new.ttl_s,
        missed=options.get("missed", "once"),
        most=options.get("most", 100),
        overlap=options.get("overlap", "queue"),
    )
    check(schedule, A_DAY_MS)
    return schedule


def program_name(module: str) -> str:
    """Return the name under which a program declares its schedules: its module, or the file of its main module."""
    if module != "__main__":
        return module
    return Path(getattr(sys.modules["__main__"], "__file__", None) or "__main__").stem
