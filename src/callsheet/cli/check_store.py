"""What the doctor looks at in a store. Whatever a store raises becomes a finding."""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from callsheet.engine.clock import DAY_MS, describe, read_mark
from callsheet.kernel.errors import CallsheetError, SchemaMismatch
from callsheet.kernel.job import Status
from callsheet.store import store_from_url
from callsheet.store.protocol import Store
from callsheet.store.sqlite import SqliteStore
from callsheet.store.sqlite.files import open_to_others

from .findings import Finding, Mark, bad, good, warning
from .passwords import check_url, without_password
from .stores import missing_file

PATIENCE_S = 15.0
ROUND_TRIPS = 20
SLOW_MS = 20.0
SKEW_MS = 1_000
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "ceph", "glusterfs", "9p", "fuse.sshfs", "afs")
RISKS = {
    "fsync=off": "a crash of the server loses jobs; set fsync=on",
    "synchronous_commit=off": "a crash of the server loses the last jobs; set synchronous_commit=on",
    "synchronous=NORMAL": "a power cut may lose the last jobs; leave ?synchronous=normal out of the URL",
    "appendonly=no": "the end of the server loses all jobs; set appendonly yes",
    "appendfsync=no": "a power cut may lose half a minute of jobs; set appendfsync everysec, or always",
    "durability unknown": "the server forbids CONFIG; ask who runs it for appendonly yes and noeviction",
}


async def check_store(url: str) -> list[Finding]:
    """The findings; only the first where the store cannot be used."""
    shown = without_password(url)
    try:
        check_url(url)
        store = store_from_url(url)
        if (path := missing_file(store)) is not None:
            return [_no_file(path, shown)]
        async with asyncio.timeout(PATIENCE_S):
            return await _open_and_check(store, shown)
    except SchemaMismatch as error:
        advice = "pip install --upgrade callsheet" if "upgrade" in str(error) else "run: callsheet migrate"
        return [bad("schema", str(error), advice)]
    except TimeoutError:
        return [bad("store", f"{shown} does not answer within {PATIENCE_S:g} s", "is the server up, the port open?")]
    except CallsheetError as error:
        return [bad("store", f"{shown}: {error}", "see --database-url and CALLSHEET_DATABASE_URL")]
    except Exception as error:  # noqa: BLE001 - a doctor tells of everything and dies of nothing
        return [bad("store", f"{shown}: {type(error).__name__}: {error}", "see --database-url")]


def _no_file(path: Path, shown: str) -> Finding:
    folder = path.absolute().parent
    if not os.access(folder, os.W_OK):
        return bad("store", f"{shown}: the folder {folder} does not exist or cannot be written", f"mkdir -p {folder}")
    return warning("store", f"{shown} does not exist yet", "callsheet migrate makes it, or the first worker")


async def _open_and_check(store: Store, shown: str) -> list[Finding]:
    try:
        with _warnings() as said:
            await store.open()
        return [
            good("store", f"{shown} is open, its schema is current"),
            *_durability(store, said),
            *(_file_system(store) if isinstance(store, SqliteStore) else []),
            await _round_trip(store),
            await _clock(store),
            await _clock_steps(store),
            *await _queues(store),
        ]
    finally:
        await store.close()


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """What the stores say in the log meanwhile: some tell of a server's settings there."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    listener, log = Listener(logging.WARNING), logging.getLogger("callsheet")
    log.addHandler(listener)
    propagates, log.propagate = log.propagate, False
    try:
        yield said
    finally:
        log.removeHandler(listener)
        log.propagate = propagates


def _durability(store: Store, said: list[str]) -> list[Finding]:
    risks = [advice for words, advice in RISKS.items() if words in store.durability]
    own = warning("durability", store.durability, "; ".join(risks)) if risks else good("durability", store.durability)
    return [own, *(warning("server", text) for text in said)]


def _file_system(store: SqliteStore) -> list[Finding]:
    if store.target.in_memory:
        return [warning("file system", "the jobs are in memory", "they end with the process; name a file")]
    kind = file_system_of(Path(store.target.path).absolute())
    if kind.startswith(NETWORK_FILE_SYSTEMS):
        advice = "locks are not safe there: move the file to a local disk, or use PostgreSQL"
        return [bad("file system", f"the file is on {kind}", advice)]
    if files := open_to_others(store.target.path, store.target.mode):
        advice = f"chmod {store.target.mode:o} {' '.join(files)}"
        return [warning("file system", "others can read or write the jobs' file, and it is not yours to close", advice)]
    return []


def file_system_of(path: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """The kind of file system that a path is on, by the longest mount point above it; empty where nobody tells."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    real, best = str(path.resolve()), ("", "")
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        point = point.replace("\\040", " ").rstrip("/")
        if f"{real}/".startswith(f"{point}/") and len(point) >= len(best[0]):
            best = point, kind
    return best[1]


async def _round_trip(store: Store) -> Finding:
    taken: list[float] = []
    for _ in range(ROUND_TRIPS):
        begun = time.perf_counter()
        await store.paused_queues()  # a small read, which SQLite's clock is not
        taken.append((time.perf_counter() - begun) * 1000)
    middle = statistics.median(taken)
    text = f"{middle:.2f} ms (median of {ROUND_TRIPS})"
    if middle > SLOW_MS:
        return warning("round trip", text, "run workers nearer to the store")
    return good("round trip", text)


async def _clock(store: Store) -> Finding:
    before = time.time()
    there = await store.now()
    skew_ms = there - (before + time.time()) / 2 * 1000
    text = f"the store is {abs(skew_ms):.0f} ms {'ahead of' if skew_ms > 0 else 'behind'} this machine"
    if abs(skew_ms) > SKEW_MS:
        return warning("clock", text, "run NTP on both; leases and run_at go by the store's clock")
    return good("clock", text)


async def _clock_steps(store: Store) -> Finding:
    """Whether the store's clock stepped within the last day, by what those who sweep have noted."""
    mark, now = await read_mark(store), await store.now()
    recent = [step for step in (mark.steps if mark else ()) if abs(now - step.at) < DAY_MS]
    if recent:
        times = f"{len(recent)} times within a day, the last" if len(recent) > 1 else "once within a day,"
        advice = "see why it was wrong, and keep it right with NTP; jobs that waited were moved"
        return warning("clock steps", f"{times} {describe(recent[-1])}", advice)
    return good("clock steps", "none within a day")


async def _queues(store: Store) -> list[Finding]:
    counts, paused = await store.counts(), await store.paused_queues()
    found: list[Finding] = []
    for queue in sorted(counts.keys() | paused):
        words = ", ".join(f"{count} {status.value}" for status, count in counts.get(queue, {}).items() if count)
        name, text = f"queue {queue}", words or "empty"
        if queue in paused:
            found.append(warning(name, f"paused; {text}", f"callsheet jobs resume {queue}"))
        else:
            found.append(Finding(Mark.GOOD, name, text))
    dead = sum(by_status.get(Status.DEAD_LETTER, 0) for by_status in counts.values())
    letters = warning("dead letters", str(dead), "callsheet jobs dead") if dead else good("dead letters", "none")
    return [*(found or [good("queues", "no jobs yet")]), letters]
