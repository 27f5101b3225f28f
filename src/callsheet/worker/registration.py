"""Tells the store which tasks a worker serves, with the JSON schemas of their arguments and results."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING

from callsheet.engine.task_register import RENEW_MS, TaskRecord, forget_old, register
from callsheet.kernel.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from callsheet.store.protocol import Store

    from .definition import Definition

log = logging.getLogger("callsheet.worker")
RETRY_S = 5.0


async def register_until_ended(register_program: Callable[[], Awaitable[None]]) -> None:
    """Register a worker's program at once, and renew its records until cancelled."""
    while True:
        try:
            await register_program()
            pause_s = RENEW_MS / 1000
        except StoreError as error:
            log.debug("the tasks cannot be registered now: %s", error)
            pause_s = RETRY_S
        await asyncio.sleep(pause_s)


async def register_tasks(store: Store, definitions: Mapping[str, Definition]) -> None:
    """Write the records of tasks, and delete those of tasks that nobody has served for long."""
    await register(store, map(_record, definitions.values()))
    await forget_old(store)


def _record(definition: Definition) -> TaskRecord:
    arguments, result = definition.json_schemas()
    return TaskRecord(
        name=definition.name,
        queue=definition.queue,
        priority=definition.priority,
        max_attempts=definition.max_attempts,
        timeout_s=definition.timeout_s,
        retry=definition.retry,
        ttl_s=definition.ttl_s,
        contract=definition.contract,
        description=inspect.getdoc(definition.function) or "",
        arguments=arguments,
        result=result,
    )
