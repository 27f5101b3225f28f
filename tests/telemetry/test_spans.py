"""Each test runs in a separate process: OpenTelemetry's providers are set once in a process and for good."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAD = """
import asyncio, sys
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from callsheet import Callsheet
from callsheet.engine import telemetry
from callsheet.kernel import commands
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from callsheet.worker.health import Gauges
from tests.store_driver import new_job

def spans_into_memory():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter

def numbers_into_memory():
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
    return reader
"""


def run(body: str) -> None:
    script = HEAD + textwrap.dedent(body)
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode == 0, process.stderr


def test_without_an_sdk_nothing_is_traced_and_a_verb_costs_little() -> None:
    run("""
        assert not telemetry.tracing()
        calls = []
        with telemetry.verb("claim", 10):  # what is made once
            pass
        sys.setprofile(lambda frame, event, value: event in ("call", "c_call") and calls.append(event))
        with telemetry.verb("claim", 10):
            pass
        sys.setprofile(None)
        assert len(calls) <= 40, len(calls)  # 25, some 4 µs; a span takes 130 more
    """)


def test_verbs_are_spans_and_their_errors_are_seen() -> None:
    run("""
        exporter = spans_into_memory()
        assert telemetry.tracing()

        async def main():
            async with Callsheet("sqlite::memory:") as app:
                engine = await app.engine()
                await engine.enqueue([new_job(), new_job()])
                try:
                    await engine.enqueue([new_job(payload="no json")])
                except Exception:
                    pass
        asyncio.run(main())
        good, bad = exporter.get_finished_spans()
        assert (good.name, dict(good.attributes)) == ("callsheet.enqueue", {"callsheet.items": 2})
        assert (good.status.status_code.name, bad.status.status_code.name) == ("UNSET", "ERROR")
    """)


def test_an_attempt_is_a_span_around_the_users_own() -> None:
    run("""
        exporter = spans_into_memory()

        async def main():
            async with Callsheet("sqlite::memory:") as app:
                engine = await app.engine()
                await engine.enqueue([new_job("resize", queue="media") for _ in range(3)])
                jobs = await engine.claim(ClaimRequest("w", ("media",), 3))
            ends = [commands.succeed(jobs[0]), commands.fail(jobs[1], JobError("boom", "it burst"), rand=0), None]
            exporter.clear()
            for job, end in zip(jobs, ends):
                with telemetry.attempt_span(job) as span:
                    with trace.get_tracer("user").start_as_current_span("inner"):
                        pass
                    span.set_outcome(end)
            return jobs
        jobs = asyncio.run(main())
        found = exporter.get_finished_spans()
        inner, outer = found[0::2], found[1::2]
        assert [s.parent.span_id for s in inner] == [s.context.span_id for s in outer]
        assert [dict(s.attributes) for s in outer] == [
            {"callsheet.job_id": job.job_id, "callsheet.task": "resize", "callsheet.queue": "media",
             "callsheet.attempt": 1, "callsheet.status": status}
            for job, status in zip(jobs, ("succeeded", "retried", "lost"))
        ]
        assert {(s.name, s.kind.name) for s in outer} == {("callsheet.job", "CONSUMER")}
        assert [(s.status.status_code.name, s.status.description) for s in outer] == [
            ("UNSET", None), ("ERROR", "boom: it burst"), ("ERROR", "lost: ")]
    """)


def test_an_attempt_span_leaves_no_context_behind() -> None:
    run("""
        import contextvars
        spans_into_memory()

        async def main():
            async with Callsheet("sqlite::memory:") as app:
                engine = await app.engine()
                await engine.enqueue([new_job()])
                (job,) = await engine.claim(ClaimRequest("w"))
            clean = contextvars.copy_context()
            with telemetry.attempt_span(job) as span:
                span.set_outcome(None)
            assert contextvars.copy_context() == clean
        asyncio.run(main())
    """)


def test_a_push_exporter_gets_the_gauges_from_its_own_thread() -> None:
    run("""
        reader = numbers_into_memory()

        async def main():
            async with Callsheet("sqlite::memory:") as app:
                @app.task
                async def nothing(): ...
                worker = app.worker(queues=("served",), poll=0.1)
                task = asyncio.create_task(worker.run())
                async with Gauges(worker):
                    while not worker.ready:
                        await asyncio.sleep(0.01)
                    await nothing.enqueue()
                    data = await asyncio.to_thread(reader.get_metrics_data)
                    worker.stop()
                    await task
                return data
        data = asyncio.run(main())
        found = {
            (m.name, *dict(p.attributes).values()): p.value
            for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics
            for p in m.data.data_points if hasattr(p, "value")
        }
        assert found["callsheet.queue.depth", "default", "ready"] == 1
        assert found["callsheet.queue.depth", "served", "ready"] == 0
        assert found["callsheet.facts", "lease_lost"] == 0
    """)
