"""A worker of the redis gateway's contract in plain redis-py; it uses the contract and imports nothing of Callsheet.

python redis_worker.py redis://127.0.0.1:6379/0 [NAME]
"""  # noqa: INP001 - a program on its own

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

STREAM, GROUP, TERMINAL = "jobs:stream", "workers", ("done", "error", "canceled")


def work(task: str, payload: Any, name: str) -> Any:
    """Your code. This example echoes after `seconds`; `fail` raises an error."""
    options = payload if isinstance(payload, dict) else {}
    time.sleep(float(options.get("seconds", 0)))
    if "fail" in options:
        raise RuntimeError(options["fail"])
    return {"task": task, "echo": payload, "worker": name}


class Worker:
    """Run one job at a time, writing in the contract's order: state, event, then the acknowledgement."""

    def __init__(self, url: str, name: str) -> None:
        # The driver must not repeat a write whose answer was lost: the job would end twice.
        self.redis: Any = redis.Redis.from_url(url, decode_responses=True, protocol=2, retry=Retry(NoBackoff(), 0))
        self.name = name
        self.stopping = False

    def run(self) -> None:
        """Work until SIGTERM; the job at hand is finished first."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopping", True))
        while not self.stopping:
            try:
                streams = self.redis.xreadgroup(GROUP, self.name, {STREAM: ">"}, count=1, block=1_000)
                for message_id, message in streams[0][1] if streams else ():
                    self.handle(message_id, message)
            except redis.ResponseError as error:
                if not str(error).startswith("NOGROUP"):
                    raise
                self.redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                sys.stderr.write(f"Redis is away, trying again: {error}\n")
                time.sleep(0.2)

    def handle(self, message_id: str, message: dict[str, str]) -> None:
        """Run the job of one message."""
        job_id, task, text = (message.get(field, "") for field in ("job_id", "task", "payload"))
        status, ttl = self.redis.hmget(f"job:{job_id}", "status", "ttl_s")
        ttl_s = int(ttl) if ttl and ttl.isdigit() else 0
        if not job_id or status in TERMINAL:  # nothing to do, or cancelled while it waited
            self.redis.xack(STREAM, GROUP, message_id)
            return
        fields = {"status": "running"}
        try:
            payload = json.loads(text)
        except ValueError:
            payload = {"_raw": text}
            fields["payload"] = json.dumps(payload)
        self.write(job_id, ttl_s, fields, "{}")
        try:
            outcome = {"status": "done", "result": json.dumps(work(task, payload, self.name))}
        except Exception as error:  # noqa: BLE001 - whatever the work raises is its outcome
            outcome = {"status": "error", "error": json.dumps({"code": type(error).__name__, "message": str(error)})}
        if self.redis.xpending_range(STREAM, GROUP, message_id, message_id, 1, self.name):
            self.write(job_id, ttl_s, outcome, outcome.get("error", "{}"), message_id)
        # Else we were silent for so long that the job was taken from us: it has, or will have, another outcome.

    def write(self, job_id: str, ttl_s: int, fields: dict[str, str], data: str, ack: str = "") -> None:
        """State, event, TTL and, for the last write, the acknowledgement: one transaction."""
        key, now_ms = f"job:{job_id}", str(time.time_ns() // 1_000_000)
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping={**fields, "updated_ts": now_ms})
            pipe.xadd(f"{key}:events", {"type": fields["status"], "ts": now_ms, "step": "worker", "data": data})
            for name in (key, f"{key}:events") if ttl_s else ():
                pipe.expire(name, ttl_s)
            if ack:
                pipe.xack(STREAM, GROUP, ack)
            pipe.execute()


if __name__ == "__main__":
    Worker(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else f"python-{os.getpid()}").run()  # noqa: PLR2004
