"""`Health`: a worker's `/livez`, `/readyz` and `/metrics` over a few lines of HTTP.

The server answers GET and HEAD, one request per connection. Anything but HTTP gets no answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from opentelemetry import metrics
from opentelemetry.metrics import Observation

from callsheet.engine import telemetry
from callsheet.engine.depths import Depths

if TYPE_CHECKING:
    from .runner import Worker


class Gauges:
    """`async with Gauges(worker):` registers the worker's gauges with OpenTelemetry; `sample` reads queue depths."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._depths = Depths(lambda: worker.engine, worker.queues)
        self._forget: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        self._forget = telemetry.observe(
            {
                **self._depths.sources,
                "callsheet.worker.slots": lambda: self._own(self._worker.options.concurrency),
                "callsheet.worker.slots.busy": lambda: self._own(self._worker.slots_busy),
                "callsheet.worker.prefetched": lambda: self._own(self._worker.prefetched),
                "callsheet.worker.unsettled": lambda: self._own(self._worker.unsettled),
                "callsheet.worker.ready": lambda: self._own(int(self._worker.ready)),
                "callsheet.worker.claim.age": lambda: self._own(claim_age_s(self._worker)),
            }
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._forget is not None:
            self._forget()
        self._depths.close()

    async def sample(self) -> None:
        """Read the queue depths from the store, unless a recent reading exists."""
        await self._depths.sample()

    def _own(self, value: float | None) -> list[Observation]:
        return [] if value is None else [Observation(value, {"worker": self._worker.options.worker_id})]


def claim_age_s(worker: Worker) -> float | None:
    """Return the seconds since the claim loop's last round without an error; None before its start."""
    return None if worker.polled_at is None else time.monotonic() - worker.polled_at


log = logging.getLogger("callsheet.worker")
LINE_BYTES = 8 * 1024
HEAD_BYTES = 4 * LINE_BYTES
REQUEST_S = 5.0
REQUEST = re.compile(rb"([A-Za-z]{1,20}) ([!-~]{1,8000}) HTTP/1\.[01]")
MISSING = "metrics need two more packages: pip install 'callsheet[metrics]'\n"
PLAIN, JSON = "text/plain; charset=utf-8", "application/json"
ONE_AT_A_TIME = threading.Lock()  # of two scrapes at once the exporter gives one everything, the other nothing
Scrape = Callable[[], bytes]


class Answer(NamedTuple):
    """An HTTP response: status, body, content type and further header lines."""

    status: HTTPStatus
    body: bytes
    kind: str = PLAIN
    head: str = ""


class Health:
    """`async with Health(worker, "0.0.0.0", 8080):`. Port 0 takes a free port, kept in `port`. Raises OSError."""

    def __init__(self, worker: Worker, host: str, port: int) -> None:
        self.port = port
        self._host = host
        self._worker = worker
        self._scrape = scraper()
        self._connections: set[asyncio.Task[None]] = set()
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self._gauges = await stack.enter_async_context(Gauges(self._worker))
            server = await asyncio.start_server(self._accept, self._host, self.port, limit=HEAD_BYTES)
            stack.push_async_callback(self._close, server)
            self.port = server.sockets[0].getsockname()[1]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        open_ = list(self._connections)
        for connection in open_:
            connection.cancel()
        await asyncio.gather(*open_, return_exceptions=True)
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        connection.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request and answer it. Reading and writing have 5 s each; preparing the answer has no limit."""
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
            line = head.partition(b"\r\n")[0]
            request = REQUEST.fullmatch(line) if len(line) <= LINE_BYTES else None
            if request is not None:
                method, target = request[1].decode(), request[2].decode()
                answer = await self._answer(method, target.partition("?")[0])
                async with asyncio.timeout(REQUEST_S):
                    writer.write(_encode(answer, body=method != "HEAD"))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a request to the health server was not one, or was not finished")

    async def _answer(self, method: str, path: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n", head="Allow: GET, HEAD\r\n")
        match path:
            case "/livez":
                return Answer(HTTPStatus.OK, b'{"alive": true}\n', JSON)
            case "/readyz":
                return self._readiness()
            case "/metrics":
                return await self._metrics()
        return Answer(HTTPStatus.NOT_FOUND, b"there are /livez, /readyz and /metrics\n")

    def _readiness(self) -> Answer:
        worker = self._worker
        if worker.ready:
            return Answer(HTTPStatus.OK, b'{"ready": true}\n', JSON)
        body = json.dumps({"ready": False, "reason": _why_not_ready(worker), "worker_id": worker.options.worker_id})
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{body}\n".encode(), JSON)

    async def _metrics(self) -> Answer:
        if self._scrape is None:
            return Answer(HTTPStatus.NOT_IMPLEMENTED, MISSING.encode())
        await self._gauges.sample()
        # In a thread: another reader of the metrics may hold their lock and wait for this event loop.
        return Answer(HTTPStatus.OK, await asyncio.to_thread(self._scrape), "text/plain; version=0.0.4; charset=utf-8")


def _encode(answer: Answer, *, body: bool) -> bytes:
    status, content, kind, more = answer
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
        f"Cache-Control: no-store\r\nConnection: close\r\n{more}\r\n"
    )
    return head.encode() + (content if body else b"")


def _why_not_ready(worker: Worker) -> str:
    """Return the reason why a worker is not ready, as a sentence for an operator."""
    age_s = claim_age_s(worker)
    if age_s is None:
        return "the worker has not begun, or has ended"
    if worker.full_disk is not None:
        return f"the disk of {worker.full_disk} is full; make room, and the worker goes on"
    poll_s = worker.poll_s
    if age_s > poll_s:
        return f"the claim loop last had an answer from the store {age_s:.1f} s ago; it asks every {poll_s:g} s"
    return "the worker is stopping, or its heartbeats do not reach the store"


def scraper() -> Scrape | None:
    """Return a function that writes all metrics of this process, or None without the extra. Sets up a missing SDK."""
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - an extra
        from prometheus_client import REGISTRY, generate_latest  # noqa: PLC0415 - comes with the exporter
    except ModuleNotFoundError:
        return None
    if type(metrics.get_meter_provider()).__name__ == "_ProxyMeterProvider":  # nobody has set one
        metrics.set_meter_provider(MeterProvider(metric_readers=[PrometheusMetricReader()]))

    def scrape() -> bytes:
        with ONE_AT_A_TIME:
            return generate_latest(REGISTRY)

    return scrape
