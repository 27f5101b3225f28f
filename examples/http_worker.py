"""A worker of the control plane (contract 003) in plain Python with httpx, and nothing of Callsheet.

CALLSHEET_URL=http://127.0.0.1:8484 CALLSHEET_API_KEY=… python examples/http_worker.py default

It claims one job at a time, beats beside the work, stops when its lease is lost or the job is cancelled, and hands the
job back when it is told to go (SIGTERM). `work` is yours to write.
"""
# ruff: noqa: INP001, T201 - a script that prints

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import traceback
import uuid
from typing import Any

import httpx

WAIT_MS = 20_000
FINAL = {401, 403, 404, 409, 410, 413, 422, 426}  # asking again would not help; all else is tried again
WORKER_ID = f"example-{uuid.uuid4().hex[:8]}"
stopping = threading.Event()


class Stopped(Exception):
    """The work is not wanted any more."""


class Refused(Exception):
    """The server's answer is final."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(f"{answer.status_code}: {answer.text[:200]}")
        self.status = answer.status_code


def ask(client: httpx.Client, verb: str, body: dict[str, Any], *, tries: int = 60) -> dict[str, Any]:
    """One call, again and again with growing pauses while that may help; raises Refused."""
    for attempt in range(tries):
        try:
            answer = client.post(f"/internal/worker/{verb}", json={"worker_id": WORKER_ID, **body})
            if answer.status_code == httpx.codes.OK:
                found: dict[str, Any] = answer.json()
                return found
            if answer.status_code in FINAL:
                raise Refused(answer)
        except (httpx.TransportError, ValueError):
            pass  # no answer, or a page that is none
        stopping.wait(min(10.0, 0.2 * 2**attempt) * random.random())  # noqa: S311 - jitter
    raise TimeoutError(f"the server has not answered {verb}")


class Job:
    """A claimed job, kept alive by a thread of its own while it runs."""

    def __init__(self, client: httpx.Client, claimed: dict[str, Any]) -> None:
        self.payload, self.task = claimed["payload"], claimed["task"]
        self.over = threading.Event()
        self.stopped = ""
        self._client = client
        self._names = {name: claimed[name] for name in ("job_id", "attempt_id", "lease_token", "stream", "message_id")}
        self._every_s = claimed["heartbeat_interval_seconds"]
        self._lease_s = claimed["lease_ttl_seconds"]

    def beat(self) -> None:
        """Say that we are alive until the end; notice that the lease is lost, or the job is cancelled."""
        held_until = time.monotonic() + self._lease_s
        while not self.over.wait(self._every_s):
            try:
                said = ask(self._client, "heartbeat", {k: self._names[k] for k in ("job_id", "lease_token")}, tries=1)
                held_until = time.monotonic() + self._lease_s
                self.stopped = "canceled" if said["cancel"] else self.stopped
            except Refused:
                self.stopped = "lost"
            except TimeoutError:
                self.stopped = "lost" if time.monotonic() > held_until else self.stopped

    def check(self) -> None:
        """Call this often in long work: raises Stopped."""
        if self.stopped or stopping.is_set():
            raise Stopped(self.stopped or "going down")

    def end(self, verb: str, **more: Any) -> None:
        """Say how it went; a lease that is lost makes it nobody's business."""
        try:
            print(f"{self._names['job_id']} {verb}: {ask(self._client, verb, {**self._names, **more})}")
        except Refused as refused:
            print(f"{self._names['job_id']} {verb} was refused: {refused}")


def work(job: Job) -> Any:
    """What this worker can do: sleep in small steps, or fail when it is asked to."""
    if "fail" in job.payload:
        raise ValueError(job.payload["fail"])
    for _ in range(round(job.payload.get("sleep_s", 0) * 20)):
        job.check()
        time.sleep(0.05)
    return {"task": job.task, "echo": job.payload}


def run(job: Job) -> None:
    """One attempt, with its heartbeats."""
    beats = threading.Thread(target=job.beat, daemon=True)
    beats.start()
    try:
        result = work(job)
        job.end("complete", result=result)
    except Stopped as why:
        if job.stopped == "canceled":
            job.end("fail", error={"code": "canceled", "retryable": False})
        elif job.stopped != "lost":
            job.end("release")
        print(f"stopped: {why}")
    except Exception as error:  # noqa: BLE001 - whatever it raises is the outcome
        stack = traceback.format_exc()[-8000:]
        job.end("fail", error={"code": type(error).__name__, "message": str(error), "stack": stack})
    finally:
        job.over.set()
        beats.join()


def main() -> None:
    """Work until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    key = os.environ["CALLSHEET_API_KEY"]
    timeout = httpx.Timeout(10.0, read=WAIT_MS / 1000 + 5)
    with httpx.Client(
        base_url=os.environ.get("CALLSHEET_URL", "http://127.0.0.1:8484"),
        headers={"Authorization": f"Bearer {key}"},
        timeout=timeout,
    ) as client:
        while not stopping.is_set():
            claimed = ask(client, "claim", {"streams": sys.argv[1:] or ["default"], "max_wait_ms": WAIT_MS})
            if claimed["claimed"]:
                run(Job(client, claimed))


if __name__ == "__main__":
    main()
