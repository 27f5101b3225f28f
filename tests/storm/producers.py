"""Producers: `python -m tests.storm.producers http|python`. They ask until each job is acknowledged, whatever fails.

Requests and acknowledgements are in the history; a killed producer resumes there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from callsheet import Callsheet, Outage
from callsheet.engine.schedules import Schedule, put_schedule
from callsheet.kernel.job import Idempotency, NewJob, OnDependencyFailure
from callsheet.kernel.wire import encode
from tests.storm.history import FOLDER, note, read_lines
from tests.storm.orders import REQUESTER, Order, http_orders, python_orders
from tests.storm.tasks import app

PAUSE_S = 0.1
HOUR_MS = 3_600_000
AGAIN = (429, 502, 503, 504)


class Settings:
    """The conductor's settings for producers and watchers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        known: dict[str, Any] = json.loads((folder / "people.json").read_text())
        self.seed: int = known["seed"]
        self.jobs: int | None = known["jobs"]
        self.pause_s: float = known["pause_s"]
        self.urls: list[str] = known["urls"]
        self.key: str = known["key"]
        self.hook: str = known["hook"]
        self.longest_ms: int = known["longest_ms"]

    def next_number(self, producer: str) -> int:
        """Return the first number whose orders were not all acknowledged."""
        facts, _ = read_lines(self.folder / "history.jsonl")
        return 1 + max((f["n"] for f in facts if f["fact"] == "numbered" and f["producer"] == producer), default=-1)

    async def numbers(self, producer: str) -> AsyncIterator[int]:
        """Give the numbers that are left, until the stop."""
        n = self.next_number(producer)
        while not (self.folder / "stop").exists() and (self.jobs is None or n < self.jobs):
            yield n
            note("numbered", producer=producer, n=n)
            await asyncio.sleep(self.pause_s)
            while (self.folder / "pause").exists() and not (self.folder / "stop").exists():
                await asyncio.sleep(PAUSE_S)
            n += 1


class HttpProducer:
    """Posts jobs to any of the servers."""

    def __init__(self, settings: Settings, client: httpx2.AsyncClient) -> None:
        self._settings, self._client, self._turn = settings, client, 0

    async def run(self) -> None:
        """Post jobs one by one."""
        async for n in self._settings.numbers("http"):
            for order in http_orders(self._settings.seed, n, self._settings.longest_ms):
                note("asked", **order.facts, mark=order.key)
                job_id = await self._create(order)
                if order.act == "cancel":
                    await self._cancel(job_id)
                if order.act == "again":
                    await self._create(order)

    async def _create(self, order: Order) -> str:
        body = {"contract": "control_plane", "task": order.task, "payload": order.payload, "max_attempts": 10_000}
        answer = await self._surely("/v1/jobs", body, {"Idempotency-Key": order.key.replace(" ", "-")})
        if answer.status_code != httpx2.codes.ACCEPTED:
            note("surprise", what=f"{order.key}: {answer.status_code} {answer.text[:300]}")
            return ""
        job_id = str(answer.json()["job_id"])
        created_at = answer.headers.get("Idempotency-Replayed") != "true"
        note("acknowledged", key=order.key, job=job_id, created=created_at)
        return job_id

    async def _cancel(self, job_id: str) -> None:
        answer = await self._surely(f"/v1/jobs/{job_id}/cancel", {"reason": "storm"}, {})
        known = answer.json() if answer.status_code == httpx2.codes.ACCEPTED else {}
        note("canceled", job=job_id, status=answer.status_code, state=known.get("state"))

    async def _surely(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        """Post, retrying transient errors, until a final answer."""
        while True:
            url = self._settings.urls[self._turn % len(self._settings.urls)]
            with contextlib.suppress(httpx2.TransportError):
                answer = await self._client.post(url + path, json=body, headers=headers)
                if answer.status_code not in AGAIN:
                    return answer
            self._turn += 1
            await asyncio.sleep(PAUSE_S)


class PythonProducer:
    """Enqueues jobs with the library, in the store itself."""

    def __init__(self, settings: Settings, app: Callsheet) -> None:
        self._settings, self._app = settings, app

    async def run(self) -> None:
        """Enqueue batch by batch."""
        async for n in self._settings.numbers("python"):
            orders = python_orders(self._settings.seed, n, self._settings.hook, self._settings.longest_ms)
            for order in orders:
                note("asked", **order.facts, mark=order.key)
            if orders[0].act == "schedule":
                await self._surely(self._schedule(orders[0]))
            else:
                await self._enqueue(orders)

    async def _enqueue(self, orders: list[Order]) -> None:
        answers = await self._surely(lambda: self._app.enqueue([self._new_job(order) for order in orders]))
        for order, handle in zip(orders, answers or (), strict=bool(answers)):
            note("acknowledged", key=order.key, job=handle.id, created=handle.created)

    def _new_job(self, order: Order) -> NewJob:
        definition = self._app.definitions[order.task]
        new = definition.new_job(order.job_id, encode(order.payload))
        fields = dict(order.fields)
        if "depends_on" in fields:
            then = OnDependencyFailure(fields["on_dependency_failure"])
            fields |= {"depends_on": tuple(fields["depends_on"]), "on_dependency_failure": then}
        contract = definition.contract or new.contract
        key = Idempotency(order.key, order.key)
        return new._replace(requester_id=REQUESTER, contract=contract, idempotency=key, **fields)

    def _schedule(self, order: Order) -> Any:
        async def put() -> None:
            """Put a schedule whose slot has come already: every housekeeper tries to fire it.

            The next run is a year away.

            One of each hour fired once more in a storm that saw a full hour, after the wait for the last job.
            """
            store = (await self._app.engine()).store
            slot_ms = await store.now() // HOUR_MS * HOUR_MS
            line = Schedule(order.key, yearly(slot_ms), order.task, encode(order.payload), requester_id=REQUESTER)
            await put_schedule(store, line, now=slot_ms - 1)
            note("scheduled", key=order.key)

        return put

    async def _surely(self, ask: Any) -> Any:
        """Ask until the store answers; an error other than an outage is unexpected."""
        while True:
            try:
                return await ask()
            except Outage:
                await asyncio.sleep(PAUSE_S)
            except Exception as error:  # noqa: BLE001 - an error of a driver that came through is what is looked for
                note("surprise", what=f"enqueue: {type(error).__name__}: {error}"[:500])
                return None


def yearly(slot_ms: int) -> str:
    """Return the line of a schedule that fires at this moment of each year."""
    slot = datetime.fromtimestamp(slot_ms / 1000, UTC)
    return f"{slot.minute} {slot.hour} {slot.day} {slot.month} *"


async def main(which: str) -> None:
    """Produce until orders or time run out."""
    settings = Settings(Path(os.environ[FOLDER]))
    if which == "python":
        async with app:
            await PythonProducer(settings, app).run()
    else:
        headers = {"Authorization": f"Bearer {settings.key}"}
        async with httpx2.AsyncClient(headers=headers, timeout=10, trust_env=False) as client:
            await HttpProducer(settings, client).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
