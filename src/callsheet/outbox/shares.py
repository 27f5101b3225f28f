"""Who gets the slots of a deliverer. A destination begins with one, earns more by quick answers, and loses them again.

Quick ones may have all slots, each up to its own number. Strangers and slow ones together leave one slot free, and
those that are known to be slow have two fifths: so an endpoint that hangs holds one slot however many events it has;
many that hang hold up each other. What cannot start soon waits in the store, not here.

These are shares of what is scarce. As long as nobody else waits, a destination that does not fail may borrow all slots,
and a requester the one that is not its own. Who comes then gets what was borrowed: it ends soon, or it takes long and
is broken off.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from typing import TypeVar

from callsheet.store.outbox import Room, Sharing

from .health import Destination

T = TypeVar("T")
SLOW_MS = 1_000
MOST_KNOWN = 10_000


class Shares:
    """How many events each destination may have: under way, and waiting here for a slot."""

    def __init__(self, slots: int, per_endpoint: int, per_requester: int | None = None) -> None:
        self.slots = slots
        self._cap = max(1, per_endpoint)
        self._requester_cap = per_requester or max(1, slots - 1)
        self._requester_may_borrow = per_requester is None  # else it is the operator's word
        self._unproven_cap = max(1, slots - 1)
        self._slow_cap = max(1, slots * 2 // 5)
        self._windows: OrderedDict[Destination, int] = OrderedDict()  # the one that was heard of last at the end
        self._quick: set[Destination] = set()
        self._slow: set[Destination] = set()
        self._failing: set[Destination] = set()  # at its last attempt
        # asked for many times a delivery, so all are kept and none is added up
        self._running: Counter[Destination] = Counter()
        self._borrowed: Counter[Destination] = Counter()  # of those that run
        self._held: Counter[Destination] = Counter()
        self._running_of: Counter[str] = Counter()  # by requester
        self._held_of: Counter[str] = Counter()
        self.running = 0  # events under way
        self.held = 0  # those, and what waits here

    @property
    def jammed(self) -> bool:
        """Whether strangers and slow ones have all that they may have; what is borrowed holds nobody up."""
        return sum(self._own(where) for where in self._running if where not in self._quick) >= self._unproven_cap

    def _own(self, where: Destination) -> int:
        """How many of its events are under way in slots of its own."""
        return self._running[where] - self._borrowed[where]

    def sharing(self, shut: Iterable[Destination], probes: Collection[Destination], batch: int) -> Sharing:
        """What a claim may take; of strangers one each, and none while those are jammed."""
        each = 0 if self.jammed else 1
        slow = self._slow_cap - sum(n - self._borrowed[o] for o, n in self._held.items() if o in self._slow)
        rooms: dict[Destination, int] = {}
        for where in self._windows:
            rooms[where] = self._room(where)
            if where in self._slow and rooms[where]:
                rooms[where] = int(slow > 0 and not self.jammed)  # those that waited longest come first
                slow -= rooms[where]
            if self._is_alone(where):
                rooms[where] = max(rooms[where], self.slots - self._held[where])
        rooms |= dict.fromkeys(shut, 0)
        rooms |= dict.fromkeys(probes, 1)
        without = tuple(requester_id for requester_id, held in self._held_of.items() if held >= _most(batch))
        return Sharing(each, tuple(Room(*where, room) for where, room in rooms.items() if room != each), without)

    def claim_limit(self, batch: int) -> int:
        """How many may be claimed, so that no requester gets to hold all that is held here."""
        lighter = [held for held in self._held_of.values() if held < _most(batch)]
        return min(batch - self.held, _most(batch) - max(lighter, default=0))

    def wait(self, where: Destination) -> None:
        """One more waits here."""
        self._held[where] += 1
        self._held_of[where.requester_id] += 1
        self.held += 1
        self._windows.setdefault(where, 1)

    def may_start(self, where: Destination) -> bool:
        """Whether one of those that wait may take a slot of its own."""
        return self._has_window(where) and self._running_of[where.requester_id] < self._requester_cap

    def may_borrow(self, where: Destination) -> bool:
        """Whether one of those that wait may take a slot that is not its own, because nobody else waits."""
        if self.running >= self.slots:
            return False
        is_only_requester = len(self._held_of) == 1 and self._requester_may_borrow
        return self._is_alone(where) or (is_only_requester and self._has_window(where))

    def _has_window(self, where: Destination) -> bool:
        if self.running >= self.slots or self._running[where] >= self._windows.get(where, 1):
            return False
        return where in self._quick or not self.is_held_up(where)

    def _is_alone(self, where: Destination) -> bool:
        """Whether all that is held here goes there, and it may have as much as there is."""
        if not self._requester_may_borrow and self._requester_cap < self.slots:
            return False
        return 0 < self._held[where] == self.held and where not in self._failing

    def is_held_up(self, where: Destination) -> bool:
        """Whether it has to wait for others of its kind, and should not do that here."""
        if where in self._quick:
            return False
        slow = sum(self._own(other) for other in self._running if other in self._slow)
        return self.jammed or (where in self._slow and slow >= self._slow_cap)

    def start(self, where: Destination, *, borrowed: bool = False) -> None:
        """One that waited is under way."""
        self._running[where] += 1
        if borrowed:
            self._borrowed[where] += 1
        self._running_of[where.requester_id] += 1
        self.running += 1

    def drop(self, where: Destination) -> None:
        """One that waited is not ours any more."""
        _less(self._held, where)
        _less(self._held_of, where.requester_id)
        self.held -= 1

    def mark_slow(self, where: Destination) -> None:
        """One of its attempts takes long already. Who was quick until now is a stranger again, others are slow."""
        if where in self._quick:
            self._quick.discard(where)
        else:
            self._slow.add(where)
        self._windows[where] = 1

    def end(self, where: Destination, *, ok: bool, took_ms: int | None, borrowed: bool = False) -> None:
        """One has ended; how long it took decides how many may follow."""
        self.drop(where)
        _less(self._running, where)
        _less(self._running_of, where.requester_id)
        if borrowed:
            _less(self._borrowed, where)
        self.running -= 1
        if took_ms is None or took_ms >= SLOW_MS:
            self._windows[where] = 1  # it was marked when its time was over
        else:
            self._slow.discard(where)
            self._quick.add(where)
            self._windows[where] = min(self._cap, self._windows.get(where, 1) + 1) if ok else 1
        (self._failing.discard if ok else self._failing.add)(where)
        self._windows.move_to_end(where)
        self._forget()

    def _room(self, where: Destination) -> int:
        """A quick destination may have as many again waiting, so that a slot is not idle during a claim."""
        if where not in self._quick and self.jammed:
            return 0
        return max(0, self._most_of(where) - self._held[where])

    def _most_of(self, where: Destination) -> int:
        """How many of its events may be here while others are."""
        window = self._windows.get(where, 1)
        return 2 * window if where in self._quick and window > 1 else window

    def surplus(self, where: Destination) -> int:
        """How many of its events came here while it was alone, and keep room from others now."""
        if self._is_alone(where):
            return 0
        return max(0, self._held[where] - self._borrowed[where] - self._most_of(where))

    def _forget(self) -> None:
        """Those that were quiet longest are strangers again."""
        while len(self._windows) > MOST_KNOWN:
            where, _ = self._windows.popitem(last=False)
            for kind in (self._slow, self._quick, self._failing):
                kind.discard(where)


def whose_more(
    before: set[Destination], taken: Counter[Destination], sharing: Sharing, *, full: bool
) -> set[Destination]:
    """Return of whom there may be more after a claim, so that the next free slot asks at once."""
    rooms = {Destination(room.requester_id, room.destination): room.room for room in sharing.rooms}
    more = before | {where for where, count in taken.items() if count >= rooms.get(where, sharing.each)}
    return more if full else {where for where in more if taken[where] >= rooms.get(where, sharing.each)}


def _most(batch: int) -> int:
    """How many of those that are held here may be one requester's."""
    return max(1, batch - max(1, batch // 3))


def _less(counter: Counter[T], key: T) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
