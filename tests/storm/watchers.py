"""The watcher: `python -m tests.storm.watchers`. It follows every third acknowledged job to its end over HTTP.

Half of them by reading the stream itself, with `Last-Event-ID` after a lost connection; half with the library's client.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import httpx2

from callsheet import CallsheetError
from callsheet.client import Client, ServerBusy, ServerUnreachable, TooManyRequests
from tests.http.live import frames
from tests.storm.history import FOLDER, note, read_lines
from tests.storm.producers import Settings

LAST = {"done", "error", "canceled"}
AT_ONCE = 40
EACH = 3
LOST = (httpx2.TransportError, httpx2.StreamError)
Seen = list[tuple[int, str]]


class Watcher:
    """Follows jobs that the history names as acknowledged."""

    def __init__(self, settings: Settings, client: httpx2.AsyncClient) -> None:
        self._settings, self._client = settings, client
        self._room = asyncio.Semaphore(AT_ONCE)
        self._turns = itertools.count()

    async def run(self) -> None:
        """Follow until the stop, and then until every started job has ended."""
        path, offset = self._settings.folder / "history.jsonl", 0
        watched_jobs: set[str] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                stopping = (self._settings.folder / "watched").exists()
                facts, offset = read_lines(path, offset)
                watched_jobs |= {fact["job"] for fact in facts if fact["fact"] == "watched"}
                jobs = [fact["job"] for fact in facts if fact["fact"] == "acknowledged" and fact["job"]]
                for job_id in jobs:
                    if _is_chosen(job_id) and job_id not in watched_jobs:
                        watched_jobs.add(job_id)
                        group.create_task(self._watch(job_id))
                if stopping:
                    break
                await asyncio.sleep(0.2)

    async def _watch(self, job_id: str) -> None:
        async with self._room:
            by_hand = int(job_id[-1], 16) % 2 == 0
            seen = await (self._by_hand(job_id) if by_hand else self._by_client(job_id))
        note("watched", job=job_id, by="hand" if by_hand else "client", seen=seen)

    async def _by_hand(self, job_id: str) -> Seen:
        """Return a job's events, over several connections if necessary."""
        seen: Seen = []
        last_id = ""
        while not seen or seen[-1][1] not in LAST:
            headers = {"Last-Event-ID": last_id} if last_id else {}
            try:
                async with self._client.stream("GET", self._url(job_id), headers=headers) as answer:
                    if answer.status_code == httpx2.codes.OK:
                        async for frame in frames(answer):
                            if frame.event != "hello":
                                seen.append((frame.data.get("seq", 0), frame.event))
                                last_id = frame.id
            except LOST:
                pass
            await asyncio.sleep(0.1)
        return seen

    def _url(self, job_id: str) -> str:
        urls = self._settings.urls
        return f"{urls[next(self._turns) % len(urls)]}/v1/jobs/{job_id}/events"

    async def _by_client(self, job_id: str) -> Seen:
        """Return all events as the library's client gives them; its timeout leads to a new attempt."""
        seen: Seen = []
        last_id: str | None = None
        while not seen or seen[-1][1] not in LAST:
            urls = self._settings.urls
            try:
                async with Client(urls[next(self._turns) % len(urls)], self._settings.key) as client:
                    async for event in client.events(job_id, last_id):
                        seen.append((event.seq, event.type))
                        last_id = event.id
            except (ServerBusy, ServerUnreachable, TooManyRequests):
                pass
            except CallsheetError as error:
                note("surprise", what=f"{job_id} is watched: {type(error).__name__}: {error}"[:300])
            await asyncio.sleep(0.1)
        return seen


def _is_chosen(job_id: str) -> bool:
    return int(job_id[-4:], 16) % EACH == 0


async def main() -> None:
    """Watch until the conductor has put the file `watched`, and until all that is followed has ended."""
    settings = Settings(Path(os.environ[FOLDER]))
    headers = {"Authorization": f"Bearer {settings.key}"}
    limits = httpx2.Limits(max_connections=None)
    timeout = httpx2.Timeout(10, read=30)
    async with httpx2.AsyncClient(headers=headers, timeout=timeout, limits=limits, trust_env=False) as client:
        await Watcher(settings, client).run()


if __name__ == "__main__":
    asyncio.run(main())
