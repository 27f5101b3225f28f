"""Fair shares of a deliverer's slots. A destination's window starts at one slot and grows with quick responses.

Quick destinations may use all slots, each up to its window. New and slow destinations together leave one slot free, and
slow destinations get two fifths of the slots: a hanging endpoint holds one slot regardless of its number of events, and
many hanging endpoints delay only each other. Events that cannot start soon wait in the store, not in the process.

Shares apply under contention. While no other destination waits, a destination without failures may borrow all slots,
and a lone requester the last slot. When another destination arrives, borrowed slots return: the attempt ends soon, or
is cancelled as slow.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeVar

from callsheet.net.guarded_client import Limits
from callsheet.store.outbox import ClaimShares, DestinationLimit

from .breaker import Destination

MAX_BATCH = 25


class DeliveryOptions(NamedTuple):
    """A deliverer holds up to `batch` claimed events and runs up to `concurrency` attempts.

    `per_requester` None limits a requester to all slots but one while other requesters wait, else to all slots.
    `drain_s` is the time that running attempts get at a stop.
    """

    batch: int = 10
    concurrency: int = 5
    per_endpoint: int = 4
    per_requester: int | None = None
    poll_ms: tuple[int, int] = (500, 1_500)
    lease_ms: int = 60_000
    drain_s: float = 1.5
    limits: Limits = Limits()

    @property
    def held(self) -> int:
        """Return the maximum of claimed events: the batch size (1 to 25), or `concurrency` if larger."""
        return max(min(max(1, self.batch), MAX_BATCH), self.concurrency)


T = TypeVar("T")
SLOW_MS = 1_000
MOST_KNOWN = 10_000


class Shares:
    """Limits and counts of each destination's events: running attempts and events waiting for a slot."""

    def __init__(self, slots: int, per_endpoint: int, per_requester: int | None = None) -> None:
        self.slots = slots
        self._cap = max(1, per_endpoint)
        self._requester_cap = per_requester or max(1, slots - 1)
        self._requester_may_borrow = per_requester is None  # a limit set by the operator is strict
        self._unproven_cap = max(1, slots - 1)
        self._slow_cap = max(1, slots * 2 // 5)
        self._windows: OrderedDict[Destination, int] = OrderedDict()  # most recently used last
        self._quick: set[Destination] = set()
        self._slow: set[Destination] = set()
        self._failing: set[Destination] = set()  # at its last attempt
        # read many times per delivery, so kept as counters instead of summed up
        self._running: Counter[Destination] = Counter()
        self._in_borrowed_slots: Counter[Destination] = Counter()  # subset of `_running`
        self._held: Counter[Destination] = Counter()
        self._running_of: Counter[str] = Counter()  # by requester
        self._held_of: Counter[str] = Counter()
        self.running = 0  # running attempts
        self.held = 0  # running attempts and waiting events

    @property
    def is_jammed(self) -> bool:
        """Return whether new and slow destinations use all their slots, not counting borrowed slots."""
        return sum(self._own(where) for where in self._running if where not in self._quick) >= self._unproven_cap

    def _own(self, where: Destination) -> int:
        """Return the number of a destination's attempts in slots that are not borrowed."""
        return self._running[where] - self._in_borrowed_slots[where]

    def claim_shares(self, shut: Iterable[Destination], probes: Collection[Destination], batch: int) -> ClaimShares:
        """Return the claim's limit per destination; new destinations get one event each, and none while jammed."""
        each = 0 if self.is_jammed else 1
        slow = self._slow_cap - sum(n - self._in_borrowed_slots[o] for o, n in self._held.items() if o in self._slow)
        rooms: dict[Destination, int] = {}
        for where in self._windows:
            rooms[where] = self._room(where)
            if where in self._slow and rooms[where]:
                rooms[where] = int(slow > 0 and not self.is_jammed)  # least recently used first
                slow -= rooms[where]
            if self._is_alone(where):
                rooms[where] = max(rooms[where], self.slots - self._held[where])
        rooms |= dict.fromkeys(shut, 0)
        rooms |= dict.fromkeys(probes, 1)
        without = tuple(requester_id for requester_id, held in self._held_of.items() if held >= _most(batch))
        return ClaimShares(
            each, tuple(DestinationLimit(*where, room) for where, room in rooms.items() if room != each), without
        )

    def claim_limit(self, batch: int) -> int:
        """Return the maximum number of events to claim, so that no requester fills the whole batch."""
        lighter = [held for held in self._held_of.values() if held < _most(batch)]
        return min(batch - self.held, _most(batch) - max(lighter, default=0))

    def wait(self, where: Destination) -> None:
        """Count a claimed event that waits for a slot."""
        self._held[where] += 1
        self._held_of[where.requester_id] += 1
        self.held += 1
        self._windows.setdefault(where, 1)

    def may_start(self, where: Destination) -> bool:
        """Return whether the destination may start an event in a regular slot."""
        return self._has_window(where) and self._running_of[where.requester_id] < self._requester_cap

    def may_borrow(self, where: Destination) -> bool:
        """Return whether the destination may start an event in a borrowed slot, since no other destination waits."""
        if self.running >= self.slots:
            return False
        is_only_requester = len(self._held_of) == 1 and self._requester_may_borrow
        return self._is_alone(where) or (is_only_requester and self._has_window(where))

    def _has_window(self, where: Destination) -> bool:
        if self.running >= self.slots or self._running[where] >= self._windows.get(where, 1):
            return False
        return where in self._quick or not self.is_held_up(where)

    def _is_alone(self, where: Destination) -> bool:
        """Return whether all held events go to one destination that may borrow every slot."""
        if not self._requester_may_borrow and self._requester_cap < self.slots:
            return False
        return 0 < self._held[where] == self.held and where not in self._failing

    def is_held_up(self, where: Destination) -> bool:
        """Return whether a new or slow destination must wait, in the store, since its kind's slots are used up."""
        if where in self._quick:
            return False
        slow = sum(self._own(other) for other in self._running if other in self._slow)
        return self.is_jammed or (where in self._slow and slow >= self._slow_cap)

    def start(self, where: Destination, *, is_borrowed: bool = False) -> None:
        """Count a waiting event as running."""
        self._running[where] += 1
        if is_borrowed:
            self._in_borrowed_slots[where] += 1
        self._running_of[where.requester_id] += 1
        self.running += 1

    def drop(self, where: Destination) -> None:
        """Remove a waiting event from the counts."""
        _less(self._held, where)
        _less(self._held_of, where.requester_id)
        self.held -= 1

    def mark_slow(self, where: Destination) -> None:
        """Reset the window to one for a slow attempt. A quick destination counts as new again, any other as slow."""
        if where in self._quick:
            self._quick.discard(where)
        else:
            self._slow.add(where)
        self._windows[where] = 1

    def end(self, where: Destination, *, ok: bool, took_ms: int | None, is_borrowed: bool = False) -> None:
        """Count an attempt as ended; its duration and success set the destination's window."""
        self.drop(where)
        _less(self._running, where)
        _less(self._running_of, where.requester_id)
        if is_borrowed:
            _less(self._in_borrowed_slots, where)
        self.running -= 1
        if took_ms is None or took_ms >= SLOW_MS:
            self._windows[where] = 1  # `mark_slow` ran at the time limit
        else:
            self._slow.discard(where)
            self._quick.add(where)
            self._windows[where] = min(self._cap, self._windows.get(where, 1) + 1) if ok else 1
        (self._failing.discard if ok else self._failing.add)(where)
        self._windows.move_to_end(where)
        self._forget()

    def _room(self, where: Destination) -> int:
        """Return the number of further events to claim for a destination; 0 while jammed unless it is quick.

        A quick destination may hold two events per slot, so that no slot idles during a claim.
        """
        if where not in self._quick and self.is_jammed:
            return 0
        return max(0, self._most_of(where) - self._held[where])

    def _most_of(self, where: Destination) -> int:
        """Return a destination's maximum of held events under contention: the window, doubled if quick."""
        window = self._windows.get(where, 1)
        return 2 * window if where in self._quick and window > 1 else window

    def surplus(self, where: Destination) -> int:
        """Return the number of a destination's events beyond its maximum, claimed while no other destination waited."""
        if self._is_alone(where):
            return 0
        return max(0, self._held[where] - self._in_borrowed_slots[where] - self._most_of(where))

    def _forget(self) -> None:
        """Drop the state of the least recently used destinations beyond 10,000."""
        while len(self._windows) > MOST_KNOWN:
            where, _ = self._windows.popitem(last=False)
            for kind in (self._slow, self._quick, self._failing):
                kind.discard(where)


def whose_more(
    before: set[Destination], counts: Counter[Destination], shares: ClaimShares, *, full: bool
) -> set[Destination]:
    """Return the destinations with possibly more due events after a claim; the next free slot then claims at once."""
    rooms = {Destination(room.requester_id, room.destination): room.limit for room in shares.limits}
    more = before | {where for where, count in counts.items() if count >= rooms.get(where, shares.each)}
    return more if full else {where for where in more if counts[where] >= rooms.get(where, shares.each)}


def _most(batch: int) -> int:
    """Return the maximum of held events of one requester, two thirds of the batch."""
    return max(1, batch - max(1, batch // 3))


def _less(counter: Counter[T], key: T) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]


class Loan(NamedTuple):
    """An attempt in a borrowed slot: destination and task."""

    where: Destination
    task: asyncio.Task[None]


class Borrowed:
    """The running attempts of a deliverer in borrowed slots, by event id."""

    def __init__(self) -> None:
        self._loans: dict[str, Loan] = {}
        self._slow: set[str] = set()
        self._broken_off: set[str] = set()

    def add(self, event_id: str, where: Destination, task: asyncio.Task[None]) -> None:
        """Record the start of an attempt in a borrowed slot."""
        self._loans[event_id] = Loan(where, task)

    def mark_slow(self, event_id: str) -> None:
        """Mark an event's attempt as slow, if its slot is borrowed."""
        if event_id in self._loans:
            self._slow.add(event_id)

    def break_off(self, waiting: Collection[Destination]) -> None:
        """Cancel slow attempts while other destinations wait for slots."""
        for event_id, (where, task) in self._loans.items():
            may_be = event_id in self._slow and event_id not in self._broken_off
            if may_be and any(other != where for other in waiting):
                self._broken_off.add(event_id)
                task.cancel()

    def is_broken_off(self, event_id: str) -> bool:
        """Return whether the deliverer cancelled an event's attempt; such an event keeps its attempt count."""
        return event_id in self._broken_off

    def end(self, event_id: str) -> bool:
        """Record the end of an attempt; returns whether its slot was borrowed."""
        self._slow.discard(event_id)
        self._broken_off.discard(event_id)
        return self._loans.pop(event_id, None) is not None
