"""Spans and metrics of the engine's verbs, by OpenTelemetry's interface: free until an SDK is installed."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import metrics, trace

if TYPE_CHECKING:
    from collections.abc import Iterator

_tracer = trace.get_tracer("callsheet")
_meter = metrics.get_meter("callsheet")
_seconds = _meter.create_histogram("callsheet.verb.duration", "s", "How long a verb of the engine took")
_items = _meter.create_counter("callsheet.verb.items", "{item}", "How many jobs, claims or settlements a verb took")
_facts = _meter.create_counter("callsheet.facts", "{fact}", "Lease losses, stale claims, dead letters and the like")


@contextmanager
def verb(name: str, items: int = 1) -> Iterator[None]:
    """A span and two metrics around one verb."""
    attributes = {"verb": name}
    begun = time.perf_counter()
    with _tracer.start_as_current_span(f"callsheet.{name}", attributes={"callsheet.items": items}):
        try:
            yield
        except Exception as error:
            attributes["error"] = type(error).__name__
            raise
        finally:
            _seconds.record(time.perf_counter() - begun, attributes)
            _items.add(items, attributes)


def fact(name: str, count: int = 1) -> None:
    """Count something worth an alert, such as `stale_claim`, `lease_lost` or `dead_letter`."""
    if count:
        _facts.add(count, {"fact": name})
