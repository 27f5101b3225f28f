"""How many names the workers of a tenant's keys may give themselves: each is noted in the store for a week.

A name costs nothing, so somebody could claim under a new one each time. Each process counts its own.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

MOST_NAMES = 1_000
WEEK_S = 7 * 86_400.0


class WorkerNames:
    """The names of a process' workers, by tenant, with when each was last used."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: dict[str, OrderedDict[str, float]] = {}

    def has_room(self, tenant: str, name: str) -> bool:
        """Whether a name may be noted: it is known, or there are not too many of this week yet."""
        names, now = self._of.setdefault(tenant, OrderedDict()), self._clock()
        while names and now - next(iter(names.values())) > WEEK_S:
            names.popitem(last=False)
        if name not in names and len(names) >= MOST_NAMES:
            return False
        names[name] = now
        names.move_to_end(name)
        return True
