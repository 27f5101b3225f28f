"""A worker of contract 003 for tests: the protocol's words over a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from callsheet.contracts.control_plane.claims import WAITING
from tests.http.live import Live
from tests.store_driver import new_job

Answer = dict[str, Any]


class Remote:
    """A worker, as far as the protocol knows one."""

    def __init__(self, live: Live, name: str = "w1") -> None:
        self._live, self.name = live, name

    async def send(self, verb: str, **body: Any) -> httpx2.Response:
        return await self._live.client.post(f"/internal/worker/{verb}", json={"worker_id": self.name, **body})

    async def claim(self, *streams: str, wait_ms: int = 0, **more: Any) -> Answer:
        answer = await self.send("claim", streams=list(streams or ("default",)), max_wait_ms=wait_ms, **more)
        assert answer.status_code == 200, answer.text
        body: Answer = answer.json()
        return body

    async def say(self, verb: str, claim: Answer, **more: Any) -> httpx2.Response:
        names = ("job_id", "attempt_id", "lease_token", "stream", "message_id")
        return await self.send(verb, **{name: claim[name] for name in names}, **more)

    async def move(self, *moves: tuple[Answer, Answer]) -> list[Answer]:
        """Send many moves in one request, each with its claim."""
        names = ("job_id", "attempt_id", "lease_token")
        texts = [{**{name: claimed[name] for name in names}, **move} for claimed, move in moves]
        answer = await self.send("moves", moves=texts)
        assert answer.status_code == 200, answer.text
        answers: list[Answer] = answer.json()["answers"]
        return answers


async def add(live: Live, **fields: Any) -> str:
    new = new_job(contract="control_plane", **fields)
    await live.engine.enqueue([new])
    return new.job_id


async def parked(live: Live, count: int) -> None:
    while (result := WAITING.get(live.state)) is None or result.parked_count < count:
        await asyncio.sleep(0.005)
