"""Puts a seeded clock and seeded chance in the place of the real ones, in the modules of the program alone."""

from __future__ import annotations

import contextlib
import gc
import logging
import random
import secrets
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any

from callsheet.engine import ids

from .loop import SimLoop

EPOCH_S = 1_767_225_600  # 2026-01-01


class SimClock:
    """What the modules see as `time`. `jumped_s` is how far the wall clock was set forward."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.jumped_s = 0.0

    def __getattr__(self, name: str) -> Any:
        if name == "sleep":
            raise AssertionError("nothing may block in a simulation")
        return getattr(time, name)

    def monotonic(self) -> float:
        """The virtual time."""
        return self._loop.time()

    perf_counter = monotonic

    def monotonic_ns(self) -> int:
        """The virtual time, in nanoseconds."""
        return round(self._loop.time() * 1_000_000) * 1_000

    def time(self) -> float:
        """The virtual wall clock, in seconds."""
        return EPOCH_S + self._loop.time() + self.jumped_s

    def time_ns(self) -> int:
        """The virtual wall clock, in nanoseconds."""
        return round(self.time() * 1_000_000) * 1_000


class SimSecrets:
    """What the modules see as `secrets`."""

    def __init__(self, chance: Random) -> None:
        self.token_bytes = chance.randbytes

    def token_hex(self, count: int) -> str:
        """So many bytes as hex digits."""
        return self.token_bytes(count).hex()


@contextlib.contextmanager
def seeded(loop: SimLoop, seed: int) -> Iterator[SimClock]:
    """Seed all modules of the program that are loaded; the block's end restores both."""
    chance, clock = Random(f"chance {seed}"), SimClock(loop)
    stand_ins = {time: clock, random: chance, secrets: SimSecrets(chance)}
    places = [
        (module, name, real)
        for module_name, module in list(sys.modules.items())
        if module_name.partition(".")[0] == "callsheet"
        for real, name in ((time, "time"), (random, "random"), (secrets, "secrets"))
        if getattr(module, name, None) is real
    ]
    for module, name, real in places:
        setattr(module, name, stand_ins[real])
    draw, ids._draw = ids._draw, lambda count: [chance.randbytes(10).hex() for _ in range(count)]
    try:
        with _undisturbed():
            yield clock
    finally:
        ids._draw = draw
        for module, name, real in places:
            setattr(module, name, real)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Disable garbage collection, whose times vary, and logging, whose level some code reads."""
    was_on, level = gc.isenabled(), logging.root.manager.disable
    gc.disable()
    ids._chances.clear()
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        ids._chances.clear()
        if was_on:
            gc.enable()
