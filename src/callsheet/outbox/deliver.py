"""The deliverer: claims due outbox events, makes delivery attempts and writes the settlements to the store.

Any number of processes may run a deliverer. A claimed event has a lease, like a job, and settlements carry the claim's
version. An attempt with an unwritten settlement is repeated with the same event id and the same body.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Self

from callsheet.engine.clock import ClockWatch
from callsheet.engine.ids import new_id
from callsheet.kernel.errors import StoreError
from callsheet.kernel.job import Claim, Delivery
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.kernel.workers import worker_identity
from callsheet.net.guarded_client import GuardedClient
from callsheet.store.protocol import Settled
from callsheet.store.tasks import end, wait

from .attempt import Attempted, Attempts
from .breaker import Destination, Health
from .gauges import OutboxGauges, count
from .shares import SLOW_MS, Borrowed, DeliveryOptions, Shares, whose_more

if TYPE_CHECKING:
    from types import TracebackType

    from callsheet.engine import Engine
    from callsheet.kernel.job import OutboxEvent

    from .endpoints import Endpoints

log = logging.getLogger("callsheet.outbox")
CALM_S = 0.02  # pause between wake-ups by hints, which arrive in bursts
TROUBLE_S = 1.0
BACK_MS = 1_000


class Deliveries:
    """`async with Deliveries(engine, endpoints)` delivers during the block; or use `run()`, and `stop()` elsewhere."""

    def __init__(
        self,
        engine: Engine,
        endpoints: Endpoints,
        options: DeliveryOptions | None = None,
        *,
        client: GuardedClient | None = None,
    ) -> None:
        self.options = options or DeliveryOptions()
        self._store, self._clock = engine.store, ClockWatch(engine.store)
        self._endpoints = endpoints
        self._own_client = GuardedClient(endpoints.rules, self.options.limits) if client is None else None
        self._attempts = Attempts(endpoints, client or self._own_client)  # type: ignore[arg-type] # one of both is there
        self._health = Health(engine.store, patience_ms=self.options.lease_ms)
        self._shares = Shares(self.options.concurrency, self.options.per_endpoint, self.options.per_requester)
        self._gauges = OutboxGauges(self._shares, self._health)
        self._name = worker_identity(os.environ, new_id())
        self._waiting: OrderedDict[Destination, deque[OutboxEvent]] = OrderedDict()
        self._held: dict[str, Claim] = {}
        self._running: dict[asyncio.Task[None], None] = {}  # in order of start
        self._loans = Borrowed()
        self._settling: list[OutboxSettlement] = []
        self._wake, self._has_settlements, self._stopping = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._more: set[Destination] = set()  # a claim took their whole share: more events may be due
        self._full = False
        self._is_over = False
        self._task: asyncio.Task[None] | None = None
        self.delivered = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._task is not None:
            await self._task

    def stop(self) -> None:
        """Stop claiming events; running attempts get `drain_s` to end. Calling twice is allowed."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Deliver events until `stop()`."""
        chores = [asyncio.create_task(chore()) for chore in (self._listen, self._beat)]
        writer = asyncio.create_task(self._write())
        forget = self._gauges.add()
        try:
            while not self._stopping.is_set():
                await self._turn()
            await self._drain()
        finally:
            forget()
            await end(*chores, *self._running)
            self._is_over = True
            self._has_settlements.set()
            await writer
            if self._own_client is not None:
                self._own_client.close()

    async def _turn(self) -> None:
        """Claim events if there is room, start attempts, and sleep until a hint, a free slot or the poll interval."""
        self._wake.clear()
        pause_s = random.uniform(*self.options.poll_ms) / 1000  # noqa: S311 - not for secrets
        try:
            if self._has_room:
                await self._claim()
            else:
                self._full = True  # claim at the next free slot, for the hint that ended the sleep
        except StoreError as error:
            log.warning("deliveries wait for the store: %s", error)
            pause_s = TROUBLE_S
        except Exception:
            log.exception("a claim of events failed; the next one tries again")
            pause_s = TROUBLE_S
        await wait(self._wake, pause_s)

    @property
    def _has_room(self) -> bool:
        return self.options.held - self._shares.held >= max(1, self.options.held // 3)

    async def _claim(self) -> None:
        now = await self._clock.glance()  # after a clock step the leases of live deliverers may look expired
        await self._health.refresh(now)
        probes = self._health.due(now)
        room = self._shares.claim_limit(self.options.held)
        shares = self._shares.claim_shares(self._health.shut(), probes, self.options.held)
        events = await self._store.outbox_claim(self._name, limit=room, lease_ms=self.options.lease_ms, shares=shares)
        self._gauges.on_claim(events, now)
        counts: Counter[Destination] = Counter()
        for event in events:
            where = Destination(event.requester_id, event.destination)
            counts[where] += 1
            self._held[event.event_id] = Claim(event.event_id, event.claim_version)
            if where in probes and not await self._health.begin_probe(where, now):
                self._hand_back(event)
                continue
            self._waiting.setdefault(where, deque()).append(event)
            self._shares.wait(where)
        self._start()
        self._hand_back_held_up()
        self._full = len(events) >= room
        self._more = whose_more(self._more, counts, shares, full=self._full)
        if events and self._more and self._shares.running < self._shares.slots and self._has_room:
            self._wake.set()  # there are free slots, and more for them

    def _start(self) -> None:
        """Give one free slot to each waiting destination in turn, then lend the remaining slots."""
        for _ in range(len(self._waiting)):
            where = next(iter(self._waiting))
            self._waiting.move_to_end(where)
            if self._shares.may_start(where):
                self._begin(where, is_borrowed=False)
        for where in list(self._waiting):
            while where in self._waiting and self._shares.may_borrow(where):
                self._begin(where, is_borrowed=True)
        self._loans.break_off(self._waiting)

    def _begin(self, where: Destination, *, is_borrowed: bool) -> None:
        event = self._waiting[where].popleft()
        if not self._waiting[where]:
            del self._waiting[where]
        self._shares.start(where, is_borrowed=is_borrowed)
        task = asyncio.create_task(self._deliver(where, event))
        if is_borrowed:
            self._loans.add(event.event_id, where, task)
        self._running[task] = None
        task.add_done_callback(self._running.pop)

    async def _deliver(self, where: Destination, event: OutboxEvent) -> None:
        attempt: Attempted | None = None
        slow = asyncio.get_running_loop().call_later(SLOW_MS / 1000, self._takes_long, where, event.event_id)
        took_ms: int | None = 0
        try:
            attempt = await self._attempts.make(event)
            self._settle(attempt.settlement)
            count(attempt)
        except asyncio.CancelledError:
            if not self._loans.is_broken_off(event.event_id):
                raise
            took_ms = None
            self._hand_back(event)
            return
        finally:
            slow.cancel()
            outcome = attempt.outcome if attempt is not None else None
            took_ms, was_borrowed = outcome.took_ms if outcome else took_ms, self._loans.end(event.event_id)
            self._shares.end(where, ok=outcome is None or outcome.ok, took_ms=took_ms, is_borrowed=was_borrowed)
            self._start()
            if (self._full or self._more) and self._has_room:
                self._wake.set()
        if attempt.outcome is not None:
            await self._judge(where, attempt)

    def _takes_long(self, where: Destination, event_id: str) -> None:
        self._shares.mark_slow(where)
        self._loans.mark_slow(event_id)
        self._hand_back_held_up()
        self._loans.break_off(self._waiting)

    async def _judge(self, where: Destination, attempt: Attempted) -> None:
        """Record an attempt at its destination's breaker, and disable a gone or failing endpoint. Logs store errors."""
        outcome, endpoint = attempt.outcome, attempt.endpoint
        assert outcome is not None  # noqa: S101 - asked by the caller
        try:
            now = await self._store.now() if not outcome.ok or self._health.breaker(where).failures else 0
            breaker = await self._health.record(where, ok=outcome.ok, now=now)
            hopeless = breaker.is_hopeless(now - self._clock.ahead_ms)  # a step is no day of failures
            if endpoint is not None and (attempt.is_gone or hopeless):
                reason = "gone" if attempt.is_gone else "failing"
                await self._endpoints.disable(endpoint.endpoint_id, endpoint.requester_id, reason)
                self._attempts.forget()
                log.warning("endpoint %s of %r is disabled: %s", endpoint.endpoint_id, endpoint.requester_id, reason)
        except StoreError as error:
            log.warning("the health of a destination was not noted: %s", error)

    def _hand_back(self, event: OutboxEvent, delay_ms: int = BACK_MS) -> None:
        """Return an event to the store: another process probes its destination, or other events go first."""
        self._settle(OutboxSettlement(event.event_id, event.claim_version, Delivery.PENDING, delay_ms, counts=False))

    def _hand_back_held_up(self) -> None:
        """Return the events of held-up destinations and surplus events to the store, to make room for others."""
        for where, line in list(self._waiting.items()):
            number = len(line) if self._shares.is_held_up(where) else min(len(line), self._shares.surplus(where))
            for _ in range(number):
                self._hand_back(line.pop())
                self._shares.drop(where)
            if not line:
                del self._waiting[where]

    def _settle(self, settlement: OutboxSettlement) -> None:
        self._settling.append(settlement)
        self._has_settlements.set()

    async def _write(self) -> None:
        """Write settlements in batches; while the store is unavailable, keep the settlements until `stop()`."""
        while not self._is_over or self._settling:
            await self._has_settlements.wait()
            self._has_settlements.clear()
            batch, self._settling = self._settling, []
            if not batch:
                continue
            try:
                answers = await self._store.outbox_settle(batch)
            except StoreError as error:
                log.warning("%d ends of deliveries are not written yet: %s", len(batch), error)
                if self._stopping.is_set():
                    return  # the leases expire, and the events are delivered again
                self._settling = batch + self._settling
                await wait(self._stopping, TROUBLE_S)
                self._has_settlements.set()
                continue
            for settlement, answer in zip(batch, answers, strict=True):
                self._held.pop(settlement.event_id, None)
                self.delivered += answer is Settled.APPLIED and settlement.status is Delivery.DELIVERED

    async def _listen(self) -> None:
        """Wake the loop at each store hint; the poll covers lost hints."""
        async for _ in self._store.hints():
            self._wake.set()
            await asyncio.sleep(CALM_S)

    async def _beat(self) -> None:
        """Extend the leases of claimed events, and drop waiting events with a lost lease."""
        while True:
            await asyncio.sleep(self.options.lease_ms / 3000)
            claims = list(self._held.values())
            if not claims:
                continue
            with contextlib.suppress(StoreError):
                beats = await self._store.outbox_heartbeat(claims, lease_ms=self.options.lease_ms)
                self._drop({claim for claim, beat in zip(claims, beats, strict=True) if not beat.held})

    def _drop(self, lost_claims: set[Claim]) -> None:
        for where, line in list(self._waiting.items()):
            for event in [e for e in line if Claim(e.event_id, e.claim_version) in lost_claims]:
                line.remove(event)
                self._shares.drop(where)
                self._held.pop(event.event_id, None)
            if not line:
                del self._waiting[where]

    async def _drain(self) -> None:
        """Return waiting events to the store, wait `drain_s` for running attempts, then cancel and return the rest."""
        waiting = [event for line in self._waiting.values() for event in line]
        self._waiting.clear()
        if self._running:
            await asyncio.wait(self._running, timeout=self.options.drain_s)
        await end(*self._running)
        settled_ids = {settlement.event_id for settlement in self._settling}
        cut_off = [claim for claim in self._held.values() if claim.job_id not in settled_ids]
        for event_id, version in dict.fromkeys([*cut_off, *(Claim(e.event_id, e.claim_version) for e in waiting)]):
            self._settle(OutboxSettlement(event_id, version, Delivery.PENDING, counts=False))
