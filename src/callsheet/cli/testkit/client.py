"""A control plane under test: its workers' routes over HTTP, and ways to put jobs in line there."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx2

from callsheet.cli.errors import CommandFailed

from .report import Broken, Check

SEED_STREAM = "default"
SEEDS = 5
ANSWER_S = 70.0
NAMES = ("job_id", "attempt_id", "lease_token", "stream", "message_id")


class Said(NamedTuple):
    """One HTTP answer of the tested control plane: its status and its JSON body."""

    status: int
    body: dict[str, Any]


class Hand:
    """One worker, as far as the protocol knows one."""

    def __init__(self, http: httpx2.AsyncClient, name: str, seen: set[str]) -> None:
        self.name = name
        self._http = http
        self._seen = seen

    async def send(self, verb: str, **body: Any) -> Said:
        """One request, whatever its answer is; raises Broken for one that is not JSON."""
        answer = await self._http.post(f"/internal/worker/{verb}", json={"worker_id": self.name, **body})
        try:
            content = answer.json()
        except ValueError:
            raise Broken(f"{verb} was answered with {answer.status_code} and no JSON: {answer.text[:80]!r}") from None
        return Said(answer.status_code, content if isinstance(content, dict) else {})

    async def claim(self, *streams: str, wait_ms: int = 0, **more: Any) -> dict[str, Any]:
        """The answer to a claim; raises Broken unless it is one."""
        answer = await self.send("claim", streams=list(streams), max_wait_ms=wait_ms, **more)
        if answer.status != httpx2.codes.OK or "claimed" not in answer.body:
            raise Broken(f"claim was answered with {answer.status}: {json.dumps(answer.body)[:200]}")
        self._seen.update([answer.body["job_id"]] if answer.body.get("job_id") else [])
        return answer.body

    async def job(self, *streams: str, within_s: float = 10.0, **more: Any) -> dict[str, Any]:
        """A claimed job; raises Broken when none comes."""
        until = time.monotonic() + within_s
        while not (job := await self.claim(*streams, wait_ms=1_000, **more))["claimed"]:
            if time.monotonic() > until:
                raise Broken(f"no job came within {within_s:g} s")
        return job

    async def say(self, verb: str, claimed: dict[str, Any], **more: Any) -> Said:
        """The end of an attempt, or a heartbeat."""
        return await self.send(verb, **{name: claimed.get(name, "") for name in NAMES}, **more)


class Peer:
    """`extended`: the server speaks protocol 2, so the checks of extensions are made."""

    def __init__(self, url: str, token: str, enqueue: str | None) -> None:
        self.url = url
        self.extended = False
        self._enqueue = enqueue
        self._streams: set[str] = set()
        self._seen: set[str] = set()  # ids of jobs that were claimed
        self._http = httpx2.AsyncClient(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(ANSWER_S, connect=5),
        )

    async def __aenter__(self) -> Self:
        try:
            answer = await self.hand().claim(self.stream(), protocol=2)
        except httpx2.TransportError as error:
            await self._http.aclose()
            raise CommandFailed(f"no answer from {self.url} ({str(error) or type(error).__name__})") from None
        except Broken as broken:
            await self._http.aclose()
            raise CommandFailed(f"{self.url} is no control plane that takes this token: {broken}") from None
        self.extended = int(answer.get("protocol") or 1) > 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._clear_away()
        finally:
            await self._http.aclose()

    async def _clear_away(self) -> None:
        """Leave nothing in line, as far as the server lets us."""
        hand = self.hand()
        for stream in self._streams:
            while (job := await hand.claim(stream))["claimed"]:
                await hand.say("complete", job, result=None)
        for job_id in self._seen:
            await self.cancel(job_id)

    async def begin(self, check: Check[Peer]) -> str:
        """Why a check cannot be made, if so."""
        return "the server speaks protocol 1" if check.extension and not self.extended else ""

    def hand(self, name: str = "") -> Hand:
        """A worker, of its own name unless given."""
        return Hand(self._http, name or f"testkit-{secrets.token_hex(4)}", self._seen)

    def stream(self) -> str:
        """A stream that nobody else uses."""
        self._streams.add(made := f"testkit-{secrets.token_hex(6)}")
        return made

    def bare(self, token: str) -> httpx2.AsyncClient:
        """A client with another token."""
        return httpx2.AsyncClient(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=10)

    async def add(self, stream: str, payload: Any = None, max_attempts: int = 3) -> None:
        """Put a job in line; raises Broken when that does not work."""
        new = {"task": "echo", "payload": {"n": 1} if payload is None else payload, "max_attempts": max_attempts}
        if self._enqueue is not None:
            await self._by_command({**new, "stream": stream})
        else:
            await self._by_follow_up({**new, "queue": stream})

    async def cancel(self, job_id: str) -> bool:
        """Ask for a job's end; False where there is no such route."""
        return (await self._http.post(f"/v1/jobs/{job_id}/cancel", json={})).is_success

    async def _by_command(self, new: dict[str, Any]) -> None:
        process = await asyncio.create_subprocess_shell(self._enqueue or "", stdin=asyncio.subprocess.PIPE)
        await process.communicate(json.dumps(new).encode())
        if process.returncode:
            raise Broken(f"{self._enqueue} ended with {process.returncode}")

    async def _by_follow_up(self, new: dict[str, Any]) -> None:
        """A job of the gateway is completed with ours behind it; others may be faster to claim it."""
        hand = self.hand()
        for _ in range(SEEDS):
            response = await self._http.post("/v1/jobs", json={"task": "chat", "payload": {"prompt": "testkit"}})
            if not response.is_success:
                raise Broken(f"POST /v1/jobs was answered with {response.status_code}; use --enqueue")
            if await self._follow(hand, response.json()["job_id"], new):
                return
        raise Broken("other workers take the jobs of the stream 'default'; stop them, or use --enqueue")

    async def _follow(self, hand: Hand, seed: str, new: dict[str, Any]) -> bool:
        others = []
        try:
            while (job := await hand.claim(SEED_STREAM))["claimed"]:
                if job["job_id"] != seed:
                    self._seen.discard(job["job_id"])  # somebody else's
                    others.append(job)
                    continue
                return (await hand.say("complete", job, result=None, follow_ups=[new])).status == httpx2.codes.OK
            return False
        finally:
            for other in others:
                await hand.say("release", other)
