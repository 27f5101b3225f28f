"""The measured peers: store, driver command and mode of each."""

from __future__ import annotations

from dataclasses import dataclass

STORES = ("sqlite", "postgres", "redis")
TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}
OURS = "callsheet"


@dataclass(frozen=True)
class Entry:
    """One job queue on one store."""

    name: str
    store: str
    environment: str  # a file of `environments/`, `node`, or empty for the project's own
    driver: str
    mode: str  # its durable settings and its fastest documented mode, in a line
    recovery: str  # what decides when a dead worker's job runs again, and the value used here
    count: int | None = None  # jobs to drain where the usual number would take too long
    server: str = ""  # where it needs another one than the rest: `valkey`

    @property
    def ground(self) -> str:
        return self.server or self.store

    @property
    def key(self) -> str:
        return f"{self.store}/{self.name}"


def _ours(store: str) -> Entry:
    mode = "durable as by default; enqueue_many in thousands, 100 jobs at once, uvloop"
    return Entry(OURS, store, "", "callsheet_.py", mode, "lease 3 s (default 30 s)")


ENTRIES = (
    _ours("sqlite"),
    Entry(
        "huey",
        "sqlite",
        "huey",
        "huey_.py",
        "WAL, fsync on, results off, one thread, polled every 1–10 ms; no bulk enqueue",
        "none: a task leaves the table when it is taken",
    ),
    Entry(
        "flexiq",
        "sqlite",
        "flexiq",
        "flexiq_.py",
        "its own WAL settings, enqueue_many, eight threads, claims of 100, polled every 5 ms, no log of each job",
        "worker's beat each 5 s and its reaper, not settable",
        count=2000,
    ),
    _ours("postgres"),
    Entry(
        "graphile-worker",
        "postgres",
        "node",
        "graphile.mjs",
        "localQueue 500, completeJobBatchDelay 0, 24 jobs at once, addJobs in thousands",
        "locks expire after four hours, not settable",
    ),
    Entry(
        "pgqueuer",
        "postgres",
        "pgqueuer",
        "pgqueuer_.py",
        "asyncpg pool, batches of 1,000, enqueue in thousands, uvloop",
        "heartbeat_timeout 3 s (default 30 s), dequeue_timeout 1 s (default 30 s)",
    ),
    Entry(
        "awa",
        "postgres",
        "awa",
        "awa_.py",
        "queue storage, enqueue_many_copy in thousands, 500 jobs at once, claims of 500, polled every 10 ms, uvloop",
        "heartbeat 1 s (30 s), stale after 3 s (90 s), looked for every 1 s (30 s)",
    ),
    Entry(
        "flexiq",
        "postgres",
        "flexiq",
        "flexiq_.py",
        "enqueue_many, eight threads, claims of 100, polled every 5 ms, no log of each job",
        "worker's beat each 5 s and its reaper, not settable",
        count=2000,
    ),
    Entry(
        "procrastinate",
        "postgres",
        "procrastinate",
        "procrastinate_.py",
        "psycopg (C), batch_defer in thousands, 50 jobs at once, successful jobs deleted, uvloop",
        "beat 1 s (10 s); an own periodic task puts jobs of workers silent for 3 s (30 s) back, each second",
        count=2000,
    ),
    _ours("redis"),
    Entry(
        "bullmq",
        "redis",
        "node",
        "bullmq.mjs",
        "ioredis, addBulk in thousands, 100 jobs at once, completed jobs removed",
        "lockDuration and stalledInterval 3 s (30 s)",
    ),
    Entry(
        "dramatiq",
        "redis",
        "dramatiq",
        "dramatiq_.py",
        "hiredis, one process of 16 threads, no time limits, callbacks or pipelines; no bulk enqueue",
        "heartbeat_timeout 3 s (60 s), maintenance at each fetch (one in a thousand)",
    ),
    Entry(
        "saq",
        "redis",
        "saq",
        "saq_.py",
        "hiredis, 100 jobs at once, done jobs dropped, uvloop; no bulk enqueue: 200 single ones at once",
        "job heartbeat 3 s (none), sweep every 2 s (60 s), which waits 5 s more",
    ),
    Entry(
        "streaq",
        "redis",
        "streaq",
        "streaq_.py",
        "on Valkey 9, because it needs functions, which Redis 6.2 has not; enqueue_many in thousands, 100 jobs at once,"
        " no results, uvloop",
        "idle_timeout 3 s (60 s)",
        server="valkey",
    ),
    Entry(
        "docket",
        "redis",
        "docket",
        "docket_.py",
        "hiredis, add_many in thousands, 50 jobs at once, minimum_check_interval 1 ms (250 ms), no records, uvloop",
        "redelivery_timeout 3 s (5 min)",
    ),
    Entry(
        "taskiq",
        "redis",
        "taskiq",
        "taskiq_.py",
        "RedisStreamBroker, hiredis, 100 jobs at once, no results, uvloop; no bulk enqueue: 200 single ones at once",
        "idle_timeout 10 s from the delivery (10 min), its lock 5 s (none)",
    ),
    Entry(
        "celery",
        "redis",
        "celery",
        "celery_.py",
        "acks_late, hiredis, pool solo (the highest median here), 64 prefetched, results ignored; no bulk enqueue",
        "visibility_timeout 5 s from the delivery (1 h); pool prefork",
        count=2000,
    ),
    Entry(
        "rq",
        "redis",
        "rq",
        "rq_.py",
        "hiredis, SimpleWorker (does not fork), enqueue_many in thousands, results dropped",
        "beat lasts 61 s (90 s), maintenance each second (10 min), worker_ttl 20 s (420 s); forking worker, Retry",
        count=1000,
    ),
)


def choose(store: str | None, names: list[str] | None) -> list[Entry]:
    """Return the entries of a store or with these names; Callsheet is always included as the reference."""
    all_names = {entry.name for entry in ENTRIES}
    if unknown := set(names or ()) - all_names:
        raise SystemExit(f"no peer is called {', '.join(sorted(unknown))}: there are {', '.join(sorted(all_names))}")
    entries = [entry for entry in ENTRIES if store in (None, entry.store)]
    stores = {entry.store for entry in entries if names is None or entry.name in names}
    return [
        entry
        for entry in entries
        if entry.store in stores and (names is None or entry.name in names or entry.name == OURS)
    ]
