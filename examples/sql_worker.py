"""A worker of cortana-vision's `jobs` table in plain psycopg; it uses the contract and imports nothing of Callsheet.

python sql_worker.py postgresql://…/database transcode [NAME]
"""  # noqa: INP001 - a program on its own

import os
import sys
import time
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

URL, JOB_TYPE, NAME = [*sys.argv[1:], f"python-{os.getpid()}"][:3]
POLL = """SELECT * FROM jobs WHERE status = 'queued' AND job_type = %s AND run_at <= now()
          ORDER BY priority DESC, created_at ASC LIMIT 1 FOR UPDATE SKIP LOCKED"""
CLAIM = "UPDATE jobs SET status = 'processing', locked_by = %s, locked_until = now() + %s WHERE id = %s"
END = "UPDATE jobs SET status = %s, payload = %s WHERE id = %s AND locked_by = %s"


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Your code: read the original, write what the contract asks for. What it returns is the job's result."""
    print(f"working on {job['id']}", flush=True)  # noqa: T201 - for people
    time.sleep(float(os.environ.get("WORK_S", "0")))
    return {}


with psycopg.connect(URL, autocommit=True, row_factory=dict_row) as db:
    db.execute("SET ROLE service_role")
    while True:
        with db.transaction():
            job = db.execute(POLL, [JOB_TYPE]).fetchone()
            if job:
                db.execute(CLAIM, [NAME, os.environ.get("LEASE", "5 minutes"), job["id"]])
        if not job:
            time.sleep(0.2)
            continue
        try:
            status, payload = "done", {**job["payload"], **work(job)}
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is the job's
            about = {"type": type(error).__name__, "message": str(error), "timestamp": datetime.now(UTC).isoformat()}
            status = "failed"
            payload = {"error": {**about, "retry_count": job["retry_count"]}, "original_payload": job["payload"]}
        db.execute(END, [status, Jsonb(payload), job["id"], NAME])  # the next stage is created with it
