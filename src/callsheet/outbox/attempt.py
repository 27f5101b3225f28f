"""One delivery attempt for an event: look up the endpoint, sign and send the event, and derive the settlement."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, NamedTuple

from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.job import Delivery
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.net.guard import BlockedTarget
from callsheet.net.guarded_client import PostFailed, Unreachable

from .decide import GONE, Outcome, log_with, retry_after_ms, settlement_of
from .endpoints import HEAD, EndpointNotFound, own_id
from .signing import key_of, signed_headers

if TYPE_CHECKING:
    from callsheet.kernel.job import OutboxEvent
    from callsheet.net.guarded_client import GuardedClient

    from .endpoints import Endpoint, Endpoints

log = logging.getLogger("callsheet.outbox")
KEPT_S = 5.0  # endpoints are cached for so long, so a revoked secret signs for at most 5 s more
MOST_KEPT = 1_000
POSTPONED_MS = 5_000


class DeliveryTarget(NamedTuple):
    """The URL and the signing keys of a delivery; `refused` is the reason for sending nothing."""

    url: str = ""
    keys: tuple[bytes, ...] = ()
    endpoint: Endpoint | None = None
    refusal: str = ""


class Attempted(NamedTuple):
    """The settlement, outcome and endpoint of an attempt. `outcome` is None if no request was sent."""

    settlement: OutboxSettlement
    outcome: Outcome | None = None
    endpoint: Endpoint | None = None

    @property
    def is_gone(self) -> bool:
        """Return whether a registered endpoint answered 410 Gone."""
        return self.outcome is not None and self.outcome.status == GONE and self.endpoint is not None


class Attempts:
    """Makes delivery attempts. Caches endpoints and their keys for five seconds."""

    def __init__(self, endpoints: Endpoints, client: GuardedClient) -> None:
        self._endpoints = endpoints
        self._client = client
        self._targets: dict[tuple[str, str], tuple[float, DeliveryTarget]] = {}

    async def make(self, event: OutboxEvent) -> Attempted:
        """Deliver an event once and return the settlement to write. Raises only CancelledError."""
        try:
            target = await self._target(event)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - store or keys: not the receiver's fault, so no attempt is spent
            log.warning("event %s waits, for its endpoint cannot be read: %s", event.event_id, error)
            return Attempted(_postpone(event))
        if target.refusal:
            return Attempted(_given_up(event, target.refusal))
        try:
            outcome = await self._send(event, target)
        except InvalidInput as error:
            log.warning("event %s can go nowhere: %s", event.event_id, error)
            return Attempted(_given_up(event, error.code), endpoint=target.endpoint)
        settlement = settlement_of(event, outcome, at_ms=_now_ms(), rand=random.random())  # noqa: S311 - jitter
        return Attempted(settlement, outcome, target.endpoint)

    def forget(self) -> None:
        """Clear the cache of endpoints and keys."""
        self._targets.clear()

    async def _send(self, event: OutboxEvent, target: DeliveryTarget) -> Outcome:
        body = event.body.encode()
        headers = signed_headers(
            target.keys, event.event_id, body, attempt=event.attempt_count + 1, at_s=int(time.time())
        )
        start = time.monotonic()
        try:
            answer = await self._client.post(target.url, body, {"content-type": "application/json", **headers})
        except (BlockedTarget, Unreachable) as error:
            if isinstance(error, BlockedTarget):
                log.warning("event %s was not sent: %s", event.event_id, error)
            # one code for both, since a tenant could map our network by the difference
            return Outcome(0, "unreachable", _since(start))
        except PostFailed as error:
            return Outcome(0, error.code, _since(start))
        wait_ms = retry_after_ms(answer.retry_after, _now_ms()) if answer.retry_after else None
        return Outcome(answer.status, "", answer.took_ms, wait_ms, answer.body)

    async def _target(self, event: OutboxEvent) -> DeliveryTarget:
        key = (event.requester_id, event.endpoint)
        entry = self._targets.get(key)
        if entry is None or time.monotonic() - entry[0] > KEPT_S:
            if len(self._targets) >= MOST_KEPT:
                del self._targets[next(iter(self._targets))]
            entry = self._targets[key] = (time.monotonic(), await self._find(*key))
        return entry[1]

    async def _find(self, requester_id: str, where: str) -> DeliveryTarget:
        is_registered = where.startswith(HEAD)
        try:
            endpoint = await self._endpoints.get(where if is_registered else own_id(requester_id), requester_id)
        except EndpointNotFound:
            return DeliveryTarget(refusal="endpoint_not_found" if is_registered else "no_secret")
        if endpoint.disabled_at is not None:
            return DeliveryTarget(endpoint=endpoint, refusal="endpoint_disabled")
        texts = await self._endpoints.open(endpoint, _now_ms())
        keys = tuple(key_of(text) for text in texts)
        return DeliveryTarget(endpoint.url if is_registered else where, keys, endpoint if is_registered else None)


def _postpone(event: OutboxEvent) -> OutboxSettlement:
    return OutboxSettlement(event.event_id, event.claim_version, Delivery.PENDING, POSTPONED_MS, counts=False)


def _given_up(event: OutboxEvent, reason: str) -> OutboxSettlement:
    """Return a settlement as dead letter, without an attempt."""
    text = log_with(event.error, Outcome(0, reason), attempt=event.attempt_count, at_ms=_now_ms(), reason=reason)
    return OutboxSettlement(event.event_id, event.claim_version, Delivery.DEAD_LETTER, counts=False, error=text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _since(start: float) -> int:
    return round((time.monotonic() - start) * 1000)
