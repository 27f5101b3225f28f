"""Limits how many worker names a tenant's keys may use per week, since the store keeps each name for a week.

A name costs nothing, so a client could claim jobs under a new name each time. Each process counts separately.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

MOST_NAMES = 1_000
WEEK_S = 7 * 86_400.0


class WorkerNames:
    """The worker names used in this process, by tenant, with the time of their last use."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: dict[str, OrderedDict[str, float]] = {}

    def has_room(self, tenant: str, name: str) -> bool:
        """Record a worker name. Returns False for a new name if the tenant has used MOST_NAMES names this week."""
        names, now = self._of.setdefault(tenant, OrderedDict()), self._clock()
        while names and now - next(iter(names.values())) > WEEK_S:
            names.popitem(last=False)
        if name not in names and len(names) >= MOST_NAMES:
            return False
        names[name] = now
        names.move_to_end(name)
        return True
