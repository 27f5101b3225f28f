"""How a worker process and its supervisor know of one another, also when one of them is killed.

The supervisor names itself in the child's environment; the child asks Linux for a SIGTERM at the supervisor's death and
elsewhere looks once a second.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, MutableMapping
from typing import NamedTuple

VARIABLE = "CALLSHEET_INTERNAL_CHILD"
PR_SET_PDEATHSIG = 1
LOOK_S = 1.0


class Place(NamedTuple):
    """A child's place: its supervisor's process id and its own number, 0 for the first."""

    supervisor: int
    number: int

    def as_environment(self) -> dict[str, str]:
        """What the child finds in its environment."""
        return {**os.environ, VARIABLE: f"{self.supervisor}:{self.number}"}


def take_place(environ: MutableMapping[str, str]) -> Place | None:
    """This process's place, None for one without a supervisor. Programs that it starts do not inherit the place."""
    text = environ.pop(VARIABLE, None)
    if text is None:
        return None
    supervisor, _, number = text.partition(":")
    return Place(int(supervisor), int(number))


def follow_to_death(place: Place) -> bool:
    """Ask for SIGTERM when the supervisor dies; False when it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return os.getppid() == place.supervisor


async def await_death(place: Place, then: Callable[[], None]) -> None:
    """Call `then` once the supervisor is gone."""
    while os.getppid() == place.supervisor:  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(LOOK_S)
    then()
