"""Spans and metrics through OpenTelemetry's API: nearly free until an SDK is installed.

Events (verbs, ends, facts) are counted here as they happen. States (queues, workers) are gauges: their owners add a
source. `docs/guides/metrics.md` lists all metrics.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Span, SpanKind, StatusCode

from callsheet.kernel.job import Job
from callsheet.kernel.settlement import Settlement
from callsheet.kernel.wire import decode

Source = Mapping[str, Callable[[], Iterable[Observation]]]
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ATTEMPT_SECONDS = (0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
BATCH_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
OUTCOMES = ("succeeded", "failed", "dead_letter", "canceled")
IDLE_METERS = ("_ProxyMeterProvider", "NoOpMeterProvider")  # the first class has no public name
IDLE = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)

_sources: list[Source] = []
_tracer = trace.get_tracer("callsheet")
_meter = metrics.get_meter("callsheet")
_seconds = _meter.create_histogram(
    "callsheet.verb.duration", "s", "How long a verb of the engine took", explicit_bucket_boundaries_advisory=SECONDS
)
_attempts = _meter.create_histogram(
    "callsheet.attempt.duration",
    "s",
    "How long an attempt took, by task and outcome",
    explicit_bucket_boundaries_advisory=ATTEMPT_SECONDS,
)
_batch_sizes = _meter.create_histogram(
    "callsheet.store.batch_size",
    "{item}",
    "How many jobs, claims or settlements a verb took at once",
    explicit_bucket_boundaries_advisory=BATCH_SIZES,
)
_end_counter = _meter.create_counter("callsheet.jobs.ended", "{job}", "Jobs that have ended, by outcome")
FACTS = {
    "retried": _meter.create_counter("callsheet.jobs.retried", "{job}", "Attempts that will be tried again"),
    "lease_lost": _meter.create_counter("callsheet.leases.lost", "{lease}", "Jobs taken from silent workers"),
    "stale_claim": _meter.create_counter("callsheet.claims.stale", "{write}", "Writes refused for a lost claim"),
    "dead_letter": _meter.create_counter("callsheet.jobs.dead", "{job}", "Jobs that became dead letters"),
    "clock_step": _meter.create_counter("callsheet.clock.steps", "{step}", "Steps of the store's clock"),
}
# Their old names, for one release: until 0.2.
_old_items = _meter.create_counter("callsheet.verb.items", "{item}", "Old name: the sum of callsheet.store.batch_size")
_old_facts = _meter.create_counter("callsheet.facts", "{fact}", "Old name: the five counters of facts, by fact")
_refusals = _meter.create_counter("callsheet.quota.refused", "{refusal}", "What tenants' quotas have refused, by quota")


@contextlib.contextmanager
def verb(name: str, items: int = 1) -> Iterator[None]:
    """Record a span and the metrics of one verb; 3 µs without an SDK, since an unseen span would cost 10 µs more."""
    attributes = {"verb": name, "error": ""}
    begun_at = time.perf_counter()
    with _span(name, items) if tracing() else contextlib.nullcontext():
        try:
            yield
        except Exception as error:
            attributes["error"] = type(error).__name__
            raise
        finally:
            _seconds.record(time.perf_counter() - begun_at, attributes)
            _batch_sizes.record(items, attributes)
            _old_items.add(items, attributes)


def _span(name: str, items: int) -> contextlib.AbstractContextManager[Span]:
    return _tracer.start_as_current_span(f"callsheet.{name}", attributes={"callsheet.items": items})


def fact(name: str, count: int = 1) -> None:
    """Count an event worth an alert: one of FACTS."""
    if count:
        FACTS[name].add(count)
        _old_facts.add(count, {"fact": name})


def quota_refused(quota: str) -> None:
    """Count a refusal by the quota's name, without the tenant's name."""
    _refusals.add(1, {"quota": quota})


def count_ended(outcome: str, count: int = 1) -> None:
    """Count ended jobs, by one of OUTCOMES."""
    if count:
        _end_counter.add(count, {"outcome": outcome})


def measuring() -> bool:
    """Return whether a meter SDK is installed, so that per-job numbers are worth their cost. Check once per batch."""
    return type(metrics.get_meter_provider()).__name__ not in IDLE_METERS


def record_attempt(task: str, outcome: str, took_s: float) -> None:
    """Record the duration of one attempt of a task. Call only if `measuring()`."""
    _attempts.record(took_s, {"task": task, "outcome": outcome})


def tracing() -> bool:
    """Return whether a tracer SDK is installed, so that spans are worth their cost.

    Takes 0.5 µs: check once per batch.
    """
    return not isinstance(trace.get_tracer_provider(), IDLE)


class attempt_span:  # noqa: N801 - a word of its users: `with attempt_span(job) as span`
    """The span of one attempt, current while the function runs. Use only if `tracing()`: a span costs 15 µs."""

    __slots__ = ("_scope", "_span")

    def __init__(self, job: Job) -> None:
        attributes: dict[str, str | int] = {
            "callsheet.job_id": job.job_id,
            "callsheet.task": job.kind,
            "callsheet.queue": job.queue,
            "callsheet.attempt": job.attempt_count,
        }
        self._scope = _tracer.start_as_current_span("callsheet.job", kind=SpanKind.CONSUMER, attributes=attributes)

    def __enter__(self) -> Self:
        self._span = self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope.__exit__(kind, error, trace)

    def set_outcome(self, settlement: Settlement | None) -> None:
        """Set the attempt's outcome on the span; None means that its claim was lost."""
        status = "lost" if settlement is None else (settlement.outcome or settlement.status).value
        self._span.set_attribute("callsheet.status", status)
        if settlement is None or settlement.error is not None:
            error = decode(settlement.error) if settlement is not None and settlement.error else {}
            self._span.set_status(StatusCode.ERROR, f"{error.get('code', status)}: {error.get('message', '')}"[:200])


def observe(source: Source) -> Callable[[], None]:
    """Add a source of gauge readings, by metric name; return a function that removes the source.

    The source's functions may be called from any thread. Counters start at 0 now, so that their first increase is
    visible.
    """
    for name, counter in FACTS.items():
        counter.add(0)
        _old_facts.add(0, {"fact": name})
    for outcome in OUTCOMES:
        _end_counter.add(0, {"outcome": outcome})
    _sources.append(source)
    return lambda: _sources.remove(source)


def _gauge(name: str, unit: str, description: str) -> None:
    def readings(_: CallbackOptions) -> Iterable[Observation]:
        return [reading for source in list(_sources) if name in source for reading in source[name]()]

    _meter.create_observable_gauge(name, [readings], unit, description)


_gauge("callsheet.queue.depth", "{job}", "Jobs that are ready, held or running, by queue")
_gauge("callsheet.queue.oldest.age", "s", "How long the longest waiting ready job has waited, by queue")
_gauge("callsheet.outbox.held", "{event}", "Events that a deliverer holds: under way, and waiting for a slot")
_gauge("callsheet.outbox.oldest.age", "s", "How late the latest event was that a deliverer took, in the last minute")
_gauge("callsheet.outbox.breakers", "{destination}", "Destinations that get nothing, or a single probe, by state")
_gauge("callsheet.worker.slots", "{slot}", "How many functions a worker runs at once at most")
_gauge("callsheet.worker.slots.busy", "{slot}", "How many functions a worker runs now")
_gauge("callsheet.worker.prefetched", "{job}", "Claimed jobs that wait in a worker for a slot")
_gauge("callsheet.worker.unsettled", "{write}", "Writes of a worker that the store has not yet acknowledged")
_gauge("callsheet.worker.ready", "", "1 while a worker can claim, else 0")
_gauge("callsheet.worker.claim.age", "s", "How long ago a worker's claim loop last had an answer")
