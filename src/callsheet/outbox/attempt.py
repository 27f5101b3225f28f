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

from .decide import GONE, Outcome, logged, retry_after_ms, settlement_of
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


class Way(NamedTuple):
    """The URL and the signing keys of a delivery; `refused` is the reason for sending nothing."""

    url: str = ""
    keys: tuple[bytes, ...] = ()
    endpoint: Endpoint | None = None
    refused: str = ""


class Attempted(NamedTuple):
    """The settlement, outcome and endpoint of an attempt. `outcome` is None if no request was sent."""

    settlement: OutboxSettlement
    outcome: Outcome | None = None
    endpoint: Endpoint | None = None

    @property
    def gone(self) -> bool:
        """Return whether a registered endpoint answered 410 Gone."""
        return self.outcome is not None and self.outcome.status == GONE and self.endpoint is not None


class Attempts:
    """Makes delivery attempts. Caches endpoints and their keys for five seconds."""

    def __init__(self, endpoints: Endpoints, outlet: GuardedClient) -> None:
        self._endpoints = endpoints
        self._outlet = outlet
        self._ways: dict[tuple[str, str], tuple[float, Way]] = {}

    async def make(self, event: OutboxEvent) -> Attempted:
        """Deliver an event once and return the settlement to write. Raises only CancelledError."""
        try:
            way = await self._way(event)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - store or keys: not the receiver's fault, so no attempt is spent
            log.warning("event %s waits, for its endpoint cannot be read: %s", event.event_id, error)
            return Attempted(_postponed(event))
        if way.refused:
            return Attempted(_given_up(event, way.refused))
        try:
            outcome = await self._send(event, way)
        except InvalidInput as error:
            log.warning("event %s can go nowhere: %s", event.event_id, error)
            return Attempted(_given_up(event, error.code), endpoint=way.endpoint)
        settlement = settlement_of(event, outcome, at_ms=_now_ms(), rand=random.random())  # noqa: S311 - jitter
        return Attempted(settlement, outcome, way.endpoint)

    def forget(self) -> None:
        """Clear the cache of endpoints and keys."""
        self._ways.clear()

    async def _send(self, event: OutboxEvent, way: Way) -> Outcome:
        body = event.body.encode()
        headers = signed_headers(way.keys, event.event_id, body, attempt=event.attempt_count + 1, at_s=int(time.time()))
        begun = time.monotonic()
        try:
            answer = await self._outlet.post(way.url, body, {"content-type": "application/json", **headers})
        except (BlockedTarget, Unreachable) as error:
            if isinstance(error, BlockedTarget):
                log.warning("event %s was not sent: %s", event.event_id, error)
            # one code for both, since a tenant could map our network by the difference
            return Outcome(0, "unreachable", _since(begun))
        except PostFailed as error:
            return Outcome(0, error.code, _since(begun))
        wait_ms = retry_after_ms(answer.retry_after, _now_ms()) if answer.retry_after else None
        return Outcome(answer.status, "", answer.took_ms, wait_ms, answer.body)

    async def _way(self, event: OutboxEvent) -> Way:
        wanted = (event.requester_id, event.endpoint)
        kept = self._ways.get(wanted)
        if kept is None or time.monotonic() - kept[0] > KEPT_S:
            if len(self._ways) >= MOST_KEPT:
                del self._ways[next(iter(self._ways))]
            kept = self._ways[wanted] = (time.monotonic(), await self._find(*wanted))
        return kept[1]

    async def _find(self, requester_id: str, where: str) -> Way:
        registered = where.startswith(HEAD)
        try:
            endpoint = await self._endpoints.get(where if registered else own_id(requester_id), requester_id)
        except EndpointNotFound:
            return Way(refused="endpoint_not_found" if registered else "no_secret")
        if endpoint.disabled_at is not None:
            return Way(endpoint=endpoint, refused="endpoint_disabled")
        texts = await self._endpoints.open(endpoint, _now_ms())
        keys = tuple(key_of(text) for text in texts)
        return Way(endpoint.url if registered else where, keys, endpoint if registered else None)


def _postponed(event: OutboxEvent) -> OutboxSettlement:
    return OutboxSettlement(event.event_id, event.claim_version, Delivery.PENDING, POSTPONED_MS, counts=False)


def _given_up(event: OutboxEvent, reason: str) -> OutboxSettlement:
    """Return a settlement as dead letter, without an attempt."""
    text = logged(event.error, Outcome(0, reason), attempt=event.attempt_count, at_ms=_now_ms(), reason=reason)
    return OutboxSettlement(event.event_id, event.claim_version, Delivery.DEAD_LETTER, counts=False, error=text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
