"""A producer of the redis gateway's contract in plain redis-py: it puts a job in line, as the contract's gateway does.

python redis_producer.py redis://127.0.0.1:6379/0 chat '{"prompt": "hello"}' [TTL_S]

It follows the job to its end and prints what it sees, one JSON object a line.
"""  # noqa: INP001 - a program on its own

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import redis

TERMINAL = ("done", "error", "canceled")


def produce(client: Any, task: str, payload: str, ttl_s: int) -> str:
    """Write the job's hash, its first event and its message, the message last; the job's id."""
    job_id, now_ms = str(uuid.uuid4()), str(time.time_ns() // 1_000_000)
    key, events = f"job:{job_id}", f"job:{job_id}:events"
    job = {"job_id": job_id, "task": task, "payload": payload, "status": "queued", "created_ts": now_ms}
    job |= {"updated_ts": now_ms, "ttl_s": str(ttl_s), "result": "", "error": ""}
    with client.pipeline(transaction=True) as pipe:
        pipe.hset(key, mapping=job)
        pipe.expire(key, ttl_s)
        pipe.xadd(events, {"type": "queued", "ts": now_ms, "step": "gateway.enqueue", "data": "{}"})
        pipe.expire(events, ttl_s)
        pipe.xadd("jobs:stream", {"job_id": job_id, "task": task, "payload": payload})
        pipe.execute()
    return job_id


def follow(client: Any, job_id: str) -> Iterator[dict[str, str]]:
    """Yield the job's events from the first to the terminal one."""
    last_id = "0"
    while True:
        for _, entries in client.xread({f"job:{job_id}:events": last_id}, block=1_000) or ():
            for entry_id, event in entries:
                last_id = entry_id
                yield event
                if event["type"] in TERMINAL:
                    return


def tell(**facts: Any) -> None:
    """Print facts as one line of JSON."""
    sys.stdout.write(f"{json.dumps(facts)}\n")
    sys.stdout.flush()


def main(url: str, task: str, payload: str, ttl_s: str = "3600") -> None:
    """Enqueue a job and print its events until it ends."""
    client: Any = redis.Redis.from_url(url, decode_responses=True, protocol=2)
    job_id = produce(client, task, payload, int(ttl_s))
    tell(job_id=job_id)
    for event in follow(client, job_id):
        tell(type=event["type"], step=event["step"], data=json.loads(event["data"]))
    job = client.hgetall(f"job:{job_id}")
    tell(status=job["status"], **{name: json.loads(job[name]) for name in ("result", "error") if job[name]})


if __name__ == "__main__":
    main(*sys.argv[1:])
