"""A start that waits for what is away: a store that is not there yet, or the server of a remote worker.

What waiting cannot mend fails at once: a wrong password, a schema that is too new, a URL that names no store.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from callsheet.kernel.durations import Duration, seconds
from callsheet.kernel.errors import StoreRefused, StoreUnavailable
from callsheet.net.backoff import pause_after

from .passwords import without_passwords

log = logging.getLogger("callsheet.cli")
T = TypeVar("T")
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopAsked(Exception):
    """A signal came before the program could begin."""


class Patience:
    """How long one start waits, for all that it opens together. `wait` 0 waits for nothing."""

    def __init__(self, wait: Duration) -> None:
        self._wait_s = seconds(wait)
        self._until: float | None = None  # the wait begins when something is found to be away

    async def open(self, opening: Callable[[], Awaitable[T]]) -> T:
        """Return what `opening` returns, asked again while that is away; raises what it raises when time is over."""
        away: StoreUnavailable | None = None
        for tries in itertools.count():
            try:
                opened = await opening()
            except StoreRefused:
                raise
            except StoreUnavailable as error:
                away = error
                await asyncio.sleep(self._pause_s(tries, away))
            else:
                if away is not None:
                    log.info("%s is there", away.waits_for)
                return opened
        raise AssertionError  # the count has no end

    def _pause_s(self, tries: int, away: StoreUnavailable) -> float:
        """Return how long to wait before the next try, which is told; raises `away` when there is no time for one."""
        pause_s = pause_after(tries, SHORTEST_PAUSE_S, LONGEST_PAUSE_S, jitter=0.5)
        pause_s += getattr(away, "retry_after_s", 0.0)
        now = time.monotonic()
        self._until = now + self._wait_s if self._until is None else self._until
        left_s = self._until - now
        if left_s <= 0:
            raise away
        told = without_passwords(str(away))
        log.warning("waiting for %s, for up to %.0f s (--wait): %s", away.waits_for, max(left_s, 1), told)
        return min(pause_s, left_s)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, a signal breaks off what the present task awaits, and StopAsked is raised."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine of a task calls it
    stops = 0

    def stop() -> None:
        nonlocal stops
        stops += 1
        log.info("stopping")
        task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not stops:
            raise
        task.uncancel()
        raise StopAsked from None
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
