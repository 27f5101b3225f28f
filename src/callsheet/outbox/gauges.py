"""Metrics of a deliverer: attempts by outcome, durations, delay of the oldest event, held events and open breakers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from opentelemetry import metrics
from opentelemetry.metrics import Observation

from callsheet.engine.telemetry import observe
from callsheet.kernel.job import Delivery

from .breaker import State

if TYPE_CHECKING:
    from callsheet.kernel.job import OutboxEvent

    from .attempt import Attempted
    from .breaker import Health
    from .shares import Shares

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0)
KEPT_S = 60.0
OUTCOMES = ("delivered", "retried", "dead_letter", "postponed")
_meter = metrics.get_meter("callsheet")
_attempts = _meter.create_counter(
    "callsheet.outbox.deliveries", "{attempt}", "Attempts at deliveries, by what became of them"
)
_seconds = _meter.create_histogram(
    "callsheet.outbox.duration", "s", "How long an attempt took", explicit_bucket_boundaries_advisory=SECONDS
)


def count(attempt: Attempted) -> None:
    """Count an attempt by outcome and record its duration, if a request was sent."""
    status, outcome = attempt.settlement.status, attempt.outcome
    word = status.value
    if status is Delivery.PENDING:
        word = "retried" if outcome is not None else "postponed"
    _attempts.add(1, {"outcome": word})
    if outcome is not None and outcome.took_ms is not None:
        _seconds.record(outcome.took_ms / 1000, {"outcome": word})


class OutboxGauges:
    """The observable gauges of a deliverer; metric readers call them from any thread."""

    def __init__(self, shares: Shares, health: Health) -> None:
        self._shares, self._health = shares, health
        self._late_s, self._late_at = 0.0, 0.0

    def add(self) -> Callable[[], None]:
        """Register the gauges; returns a function that removes the gauges."""
        for outcome in OUTCOMES:
            _attempts.add(0, {"outcome": outcome})
        return observe(
            {
                "callsheet.outbox.held": self._held,
                "callsheet.outbox.oldest.age": self._oldest,
                "callsheet.outbox.breakers": self._breakers,
            }
        )

    def on_claim(self, events: Sequence[OutboxEvent], now: int) -> None:
        """Record the largest delay among claimed events; the maximum stays for a minute, so that a scrape sees it."""
        late_s = max([0.0, *((now - event.run_at) / 1000 for event in events)])
        if late_s >= self._late_s or time.monotonic() - self._late_at > KEPT_S:
            self._late_s, self._late_at = late_s, time.monotonic()

    def _oldest(self) -> Iterable[Observation]:
        return [Observation(self._late_s)]

    def _held(self) -> Iterable[Observation]:
        running = self._shares.running
        waiting = max(0, self._shares.held - running)
        return [Observation(running, {"state": "under_way"}), Observation(waiting, {"state": "waiting"})]

    def _breakers(self) -> Iterable[Observation]:
        states = self._health.states()
        return [
            Observation(states.count(state), {"state": state.value}) for state in State if state is not State.CLOSED
        ]
