"""A worker of the control plane (contract 003) in plain Python with httpx2, and nothing of Callsheet.

CALLSHEET_URL=https://jobs.example.org CALLSHEET_TOKEN=… CALLSHEET_STREAMS=media,default python examples/http_worker.py

One job at a time. Heartbeats wait at the server: a cancellation arrives at once. SIGTERM hands the job back.
Write your own `TASKS`; these are the tasks of `callsheet testkit worker`.
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

import httpx2

URL, TOKEN = os.environ.get("CALLSHEET_URL", "http://127.0.0.1:8484"), os.environ["CALLSHEET_TOKEN"]
STREAMS = os.environ.get("CALLSHEET_STREAMS", "default").split(",")
WORKER_ID = os.environ.get("CALLSHEET_WORKER_ID") or f"example-{uuid.uuid4().hex[:8]}"
WAIT_MS, SLACK_S = 20_000, 5.0
AGAIN = {408, 425, 429}  # these and 5xx are asked again, as is an answer that is no JSON; all else is final
stopping = threading.Event()
claiming = False


class Stopped(Exception):
    """The job was cancelled."""


class Going(Exception):
    """SIGTERM arrived while the worker waited for a job."""


class Refused(Exception):
    """The server's answer is final."""


def ask(client: httpx2.Client, verb: str, body: dict[str, Any], *, tries: int = 60, wait_ms: int = 0) -> dict[str, Any]:
    """One call, again with growing, random pauses while that may help; raises Refused, or TimeoutError in the end."""
    for attempt in range(tries):
        pause_s = random.random() * min(10.0, 0.2 * 2**attempt)  # noqa: S311 - full jitter
        try:
            timeout = httpx2.Timeout(wait_ms / 1000 + SLACK_S, connect=5.0)
            first = {"first": True} if verb == "claim" and not attempt else {}
            message = {"worker_id": WORKER_ID, "protocol": 2, **first, **body}
            answer = client.post(f"/internal/worker/{verb}", json=message, timeout=timeout)
            if answer.is_success:
                content = answer.json()
                if isinstance(content, dict):
                    if content.get("drain"):
                        stopping.set()
                    return content
            elif answer.status_code not in AGAIN and answer.status_code < 500:  # noqa: PLR2004 - HTTP's own number
                raise Refused(f"{verb}: {answer.status_code} {answer.text[:200]}")
            pause_s += min(60.0, float(answer.headers.get("Retry-After", "0")))
        except (httpx2.TransportError, ValueError):
            pass  # no answer, or a page that is none
        time.sleep(pause_s if attempt + 1 < tries else 0)
    raise TimeoutError(f"the server has not answered {verb}")


class Job:
    """A claimed job, kept alive by a thread of its own while it runs."""

    def __init__(self, client: httpx2.Client, answer: dict[str, Any]) -> None:
        self.payload, self.task = answer["payload"], answer["task"]
        self.over, self.stop_reason = threading.Event(), ""
        self.client = client
        self.names = {name: answer[name] for name in ("job_id", "attempt_id", "lease_token", "stream", "message_id")}
        self.every_s, self.lease_s = answer["heartbeat_interval_seconds"], answer["lease_ttl_seconds"]

    def beat(self) -> None:
        """Extend the lease until the end. The server answers when the job is to be cancelled, else after a beat."""
        proof = {k: self.names[k] for k in ("job_id", "lease_token")}
        held_until, wait_ms = time.monotonic() + self.lease_s, 0  # the first beat confirms the claim, at once
        while not self.over.is_set() and not self.stop_reason:
            asked_at = time.monotonic()
            try:
                answer = ask(self.client, "heartbeat", {**proof, "wait_ms": wait_ms}, tries=1, wait_ms=wait_ms)
                held_until = asked_at + self.lease_s
                self.stop_reason = "canceled" if answer.get("cancel") else ""
            except Refused:
                self.stop_reason = "lost"
            except TimeoutError:
                self.stop_reason = "lost" if time.monotonic() > held_until else ""
            if time.monotonic() - asked_at < wait_ms / 2000:
                self.over.wait(min(1.0, self.every_s))  # an answer before its time: do not hurry
            wait_ms = round(self.every_s * 1000)

    def check(self) -> None:
        """Call this often in long work: raises Stopped."""
        if self.stop_reason or going:
            raise Stopped(self.stop_reason or "going down")

    def end(self, verb: str, **more: Any) -> None:
        """Report the outcome, repeating until the server answers; after a lost lease the report is dropped."""
        try:
            ask(self.client, verb, {**self.names, **more})
            print(f"{self.names['job_id']} {verb}", flush=True)
        except (Refused, TimeoutError) as error:
            print(f"{self.names['job_id']} {error}", flush=True)


class Failed(Exception):
    """An outcome that the payload asked for."""

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__(payload.get("message", "asked to fail"))
        self.retryable = payload.get("retryable", True)


def fail(job: Job) -> None:
    """Fail with the error that the payload describes."""
    raise Failed(job.payload)


def sleep(job: Job) -> dict[str, float]:
    """Sleep in small steps, so that a cancellation can interrupt."""
    until = time.monotonic() + job.payload["seconds"]
    while (left_s := until - time.monotonic()) > 0:
        job.check()
        time.sleep(min(0.05, left_s))
    return {"slept": job.payload["seconds"]}


TASKS = {"echo": lambda job: job.payload, "fail": fail, "sleep": sleep}


def run(job: Job) -> None:
    """Run one attempt, with its heartbeats."""
    threading.Thread(target=job.beat, daemon=True).start()
    try:
        if job.task not in TASKS:
            job.end("release", reason="incapable")
        else:
            job.end("complete", result=TASKS[job.task](job))
    except Stopped as why:
        print(f"stopped: {why}", flush=True)
        if job.stop_reason == "canceled":
            job.end("fail", error={"code": "canceled", "retryable": False})
        elif job.stop_reason != "lost":
            job.end("release")
    except Exception as error:  # noqa: BLE001 - whatever it raises is the outcome
        details = {"code": type(error).__name__, "message": str(error), "stack": traceback.format_exc()[-8000:]}
        job.end("fail", error={**details, "retryable": getattr(error, "retryable", True)})
    finally:
        job.over.set()


going = False


def go(*_: object) -> None:
    """SIGTERM: take no more, hand back what runs; a request that waits for jobs is broken off."""
    global going  # noqa: PLW0603 - a signal handler has nothing else
    going = True
    stopping.set()
    if claiming:
        raise Going


def main() -> None:
    """Work until SIGTERM, or until the server drains this worker."""
    global claiming  # noqa: PLW0603
    signal.signal(signal.SIGTERM, go)
    with httpx2.Client(base_url=URL, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        while not stopping.is_set():
            request = {"streams": STREAMS, "max_wait_ms": WAIT_MS, "claim_request_id": uuid.uuid4().hex}
            try:
                claiming = True
                answer = ask(client, "claim", request, tries=1_000_000, wait_ms=WAIT_MS)
                claiming = False
            except Going:  # its answer may be lost: the same name asks for the same job
                claiming = False
                answer = ask(client, "claim", {**request, "max_wait_ms": 0, "first": False}, tries=2)
            if answer.get("claimed"):
                run(Job(client, answer))


if __name__ == "__main__":
    try:
        main()
    except Refused as refused:
        sys.exit(f"this worker is not wanted: {refused}")
