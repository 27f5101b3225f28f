"""Limits per client: requests per second, open streams, and the size of a body."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from callsheet.engine.quotas import DEFAULTS, UNLIMITED, Quota
from callsheet.engine.stored import refused

from .buckets import Buckets
from .problems import Problem, of_quota

if TYPE_CHECKING:
    from .keys import Principal

BODY_BYTES = 1024 * 1024
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

    def check(self, who: Principal, now: float | None = None, quota: Quota = UNLIMITED) -> None:
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
            raise of_quota(refused("rate", who.requester_id, limit=limit, used=limit), wait_s)


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

    def enter(self, who: Principal, quota: Quota = UNLIMITED) -> None:
        """Count a new stream; raises Problem `too_many_streams` or `quota_exceeded`."""
        tenant, limit = who.requester_id, quota.streams
        if not who.admin and self._of_keys[who.key_id] >= self._limit:
            raise Problem(
                "too_many_streams",
                f"this key has {self._limit} streams open already; one can watch many jobs: /v1/events?jobs=…",
                headers={"Retry-After": "5"},
            )
        if not who.admin and limit and (used := self._of_tenants[tenant]) >= limit:
            raise of_quota(refused("streams", tenant, limit=limit, used=used), 5)
        self._of_keys[who.key_id] += 1
        self._of_tenants[tenant] += 1

    def leave(self, who: Principal) -> None:
        """Stop counting a closed stream."""
        for counter, name in ((self._of_keys, who.key_id), (self._of_tenants, who.requester_id)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]
