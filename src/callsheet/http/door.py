"""Limits on strangers' connections: connections on which no request has yet proved its sender by key or signed URL.

A connection is a stranger's until one of its requests has proved its sender. Each process counts its own connections.
This module also counts failed sign-ins by client address.
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
KEY_ID = "callsheet.key_id"  # in a scope: the caller's key id, once proved
RETRY_S = 5
MOST_ADDRESSES = 10_000
FAILURES = 10.0
FAILURES_A_SECOND = 0.2


class Strangers(NamedTuple):
    """The limits on strangers' connections: in total, and per address."""

    most: int = 1_000
    of_one_address: int = 300


class Door:
    """Counts strangers' connections. Trusted proxies, which forward many clients, have no limit per address."""

    def __init__(self, limits: Strangers, proxies: Proxies = NOBODY) -> None:
        self._limits, self._proxies = limits, proxies
        self._inside: Counter[str] = Counter()

    @property
    def strangers(self) -> int:
        """The number of open strangers' connections."""
        return self._inside.total()

    def enter(self, address: str) -> Problem | None:
        """Count a new connection. Returns the Problem to answer with if a limit is reached, else None."""
        limits, problem = self._limits, None
        if self._inside[address] >= limits.of_one_address and not self._proxies.trust(address):
            problem = _crowded("too_many_requests", "your address has")
        elif self._inside.total() >= limits.most:
            problem = _crowded("too_many_connections", "this server has")
        self._inside[address] += 1
        return problem

    def leave(self, address: str) -> None:
        """Stop counting a connection that was closed or whose client proved its identity."""
        self._inside[address] -= 1
        if not self._inside[address]:
            del self._inside[address]


def _crowded(code: str, who: str) -> Problem:
    told = f"{who} too many open connections that have shown no key; close some, or come back in {RETRY_S} s"
    return Problem(code, told, headers={"Retry-After": str(RETRY_S), "Connection": "close"})


def admit(scope: Scope, key_id: str) -> None:
    """Mark a request as sent by a proven client. `Front` hands out the request body only after this call."""
    scope[KEY_ID] = key_id
    connection: Any = scope.get(CONNECTION)
    if connection is not None:
        connection.admit()


class Failures:
    """Token buckets that count failed sign-ins by client address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @contextlib.contextmanager
    def counted(self, address: str, *, guessed: bool) -> Iterator[None]:
        """Count a Problem `unauthorized` raised in the block as a failed sign-in of this address.

        Raises `too_many_requests` if the address has failed too often. `guessed`: the key was chosen by a person, and
        such an address is refused before its key is checked. Generated keys are always checked: clients behind the same
        address may hold valid ones, and nobody guesses those.
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
