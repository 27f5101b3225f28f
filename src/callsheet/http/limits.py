"""Limits per client: requests per second, open streams, failed sign-ins, worker names, and the size of a body."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from callsheet.engine.quotas import DEFAULTS, NO_LIMITS, Quota
from callsheet.engine.stored import quota_exceeded

from .buckets import Buckets
from .problems import Problem, of_quota

if TYPE_CHECKING:
    from .keys import Principal

BODY_BYTES = 1024 * 1024
MOST_ADDRESSES = 10_000
FAILURES = 10.0
FAILURES_A_SECOND = 0.2
SHARE = 5  # at least this many tenants are needed to fill a queue


class Limits(NamedTuple):
    """All limits of a server. `quota` is each tenant's default quota; an operator can set others per tenant."""

    body_bytes: int = BODY_BYTES
    rate: float = 1_000.0
    streams: int = 200
    queue_depth: int = 100_000
    watched_jobs: int = 200
    quota: Quota = DEFAULTS

    @property
    def share(self) -> Quota:
        """The default quota per tenant, lowered so that no tenant alone can fill a queue, however short queues are."""
        if not self.queue_depth or not self.quota.queued:
            return self.quota
        return self.quota._replace(queued=min(self.quota.queued, max(1, self.queue_depth // SHARE)))


class Rates:
    """Token buckets per key and per tenant. Admin keys, which belong to operators, are not counted."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._of_keys = Buckets()
        self._of_tenants = Buckets()

    def check(self, who: Principal, now: float | None = None, quota: Quota = NO_LIMITS) -> None:
        """Take one token; raises Problem `too_many_requests` or `quota_exceeded` with the seconds to wait."""
        if who.admin:
            return
        rate = who.rate or self._rate
        at = time.monotonic() if now is None else now
        if wait_s := self._of_keys.take(who.key_id, rate, at):
            raise Problem(
                "too_many_requests",
                f"this key may send {rate:g} requests in a second; come back in {wait_s} s",
                headers={"Retry-After": str(wait_s)},
            )
        limit = quota.rate
        if limit and who.requester_id and (wait_s := self._of_tenants.take(who.requester_id, limit, at)):
            raise of_quota(quota_exceeded("rate", who.requester_id, limit=limit, used=limit), wait_s)


class Streams:
    """Counts open event streams by key and by tenant."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._of_keys: Counter[str] = Counter()
        self._of_tenants: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """The number of open streams."""
        return self._of_keys.total()

    def of_tenant(self, requester_id: str) -> int:
        """Return the number of streams that a tenant has open in this process."""
        return self._of_tenants[requester_id]

    def enter(self, who: Principal, quota: Quota = NO_LIMITS) -> None:
        """Count a new stream; raises Problem `too_many_streams` or `quota_exceeded`."""
        tenant, limit = who.requester_id, quota.streams
        if not who.admin and self._of_keys[who.key_id] >= self._limit:
            raise Problem(
                "too_many_streams",
                f"this key has {self._limit} streams open already; one can watch many jobs: /v1/events?jobs=…",
                headers={"Retry-After": "5"},
            )
        if not who.admin and limit and (used := self._of_tenants[tenant]) >= limit:
            raise of_quota(quota_exceeded("streams", tenant, limit=limit, used=used), 5)
        self._of_keys[who.key_id] += 1
        self._of_tenants[tenant] += 1

    def leave(self, who: Principal) -> None:
        """Stop counting a closed stream."""
        for counter, name in ((self._of_keys, who.key_id), (self._of_tenants, who.requester_id)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]


MOST_NAMES = 1_000
WEEK_S = 7 * 86_400.0


class WorkerNames:
    """The worker names used in this process, by tenant, with the time of their last use.

    The store keeps each name for a week, and a client could claim jobs under a new name each time.
    """

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


class FailedSignIns:
    """Token buckets that count failed sign-ins by client address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @contextlib.contextmanager
    def count_failures(self, address: str, *, is_guessable: bool) -> Iterator[None]:
        """Count a Problem `unauthorized` raised in the block as a failed sign-in of this address.

        Raises `too_many_requests` if the address has failed too often. `guessed`: the key was chosen by a person, and
        such an address is refused before its key is checked. Generated keys are always checked: clients behind the same
        address may hold valid ones, and nobody guesses those.
        """
        if is_guessable and self._left(address) < 1.0:
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
