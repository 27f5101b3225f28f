"""Connections of strangers: how many may be open at once that have shown neither a key nor a signed URL.

A connection is a stranger's until one of its requests has proved who sends it. Each process counts its own.
Beside them, sign-ins that failed are counted by the address that they came from.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .problems import Problem
from .proxies import NOBODY, Proxies

if TYPE_CHECKING:
    from starlette.types import Scope

CONNECTION = "callsheet.connection"  # in a scope: the connection that a request came on
KEY_ID = "callsheet.key_id"  # in a scope: who asks, once that is proved
RETRY_S = 5
MOST_ADDRESSES = 10_000
FAILURES = 10.0
FAILURES_A_SECOND = 0.2


class Strangers(NamedTuple):
    """The limits of strangers' connections, in all and of one address."""

    most: int = 1_000
    of_one_address: int = 300


class Door:
    """Counts the connections of strangers; those of a trusted proxy come from many, and have no limit by address."""

    def __init__(self, limits: Strangers, proxies: Proxies = NOBODY) -> None:
        self._limits, self._proxies = limits, proxies
        self._inside: Counter[str] = Counter()

    @property
    def strangers(self) -> int:
        """The number of strangers' connections that are open."""
        return self._inside.total()

    def enter(self, address: str) -> Problem | None:
        """Count a new connection; returns the Problem to answer with when the door is full."""
        limits, problem = self._limits, None
        if self._inside[address] >= limits.of_one_address and not self._proxies.trust(address):
            problem = _crowded("too_many_requests", "your address has")
        elif self._inside.total() >= limits.most:
            problem = _crowded("too_many_connections", "this server has")
        self._inside[address] += 1
        return problem

    def leave(self, address: str) -> None:
        """Stop counting a connection: it was closed, or its client proved itself."""
        self._inside[address] -= 1
        if not self._inside[address]:
            del self._inside[address]


def _crowded(code: str, who: str) -> Problem:
    told = f"{who} too many open connections that have shown no key; close some, or come back in {RETRY_S} s"
    return Problem(code, told, headers={"Retry-After": str(RETRY_S), "Connection": "close"})


def admit(scope: Scope, key_id: str) -> None:
    """Note that a request has proved who sends it; `Front` hands out its body after this."""
    scope[KEY_ID] = key_id
    connection: Any = scope.get(CONNECTION)
    if connection is not None:
        connection.admit()


class Failures:
    """A token bucket of failed sign-ins for each address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @contextlib.contextmanager
    def counted(self, address: str, *, guessed: bool) -> Iterator[None]:
        """Try a key, which may fail with Problem `unauthorized`; raises `too_many_requests` for one failure too many.

        `guessed`: the key is one that somebody chose. Then an address that failed too often is not even heard: others
        may share it, and have keys that nobody guesses.
        """
        if guessed and self._left(address) < 1.0:
            raise self._refusal(address)
        try:
            yield
        except Problem as problem:
            if problem.code != "unauthorized":
                raise
            if self._left(address) < 1.0:
                raise self._refusal(address) from None
            self._count(address)
            raise

    def _refusal(self, address: str) -> Problem:
        wait_s = math.ceil((1.0 - self._left(address)) / FAILURES_A_SECOND)
        return Problem(
            "too_many_requests",
            f"too many sign-ins from your address have failed; come back in {wait_s} s",
            headers={"Retry-After": str(wait_s)},
        )

    def _count(self, address: str) -> None:
        self._buckets[address] = (self._left(address) - 1.0, self._clock())
        self._buckets.move_to_end(address)
        while len(self._buckets) > MOST_ADDRESSES:
            self._buckets.popitem(last=False)

    def _left(self, address: str) -> float:
        tokens, since = self._buckets.get(address, (FAILURES, 0.0))
        return min(FAILURES, tokens + (self._clock() - since) * FAILURES_A_SECOND)
