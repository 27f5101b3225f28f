"""Checks of the store, the transport and the object storage. Whatever they raise becomes a finding."""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from callsheet.cli.errors import check_url, without_password
from callsheet.cli.open_store import missing_file
from callsheet.engine.clock import DAY_MS, describe, read_mark
from callsheet.engine.ids import new_id
from callsheet.kernel.errors import CallsheetError, SchemaMismatch, StoreUnavailable
from callsheet.kernel.job import Status
from callsheet.objects import Objects, ObjectsError, ObjectsForbidden, ObjectsUnavailable, objects_from_url
from callsheet.store import store_from_url
from callsheet.store.protocol import Store
from callsheet.store.sqlite import SqliteStore
from callsheet.store.sqlite.files import open_to_others

from .findings import Finding, Mark, bad, good, warning

STORE_LIMIT_S = 15.0
TRANSPORT_LIMIT_S = 5.0
OBJECTS_LIMIT_S = 20.0
PROBE = b"callsheet doctor"
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
    """Return the findings about a store; only one if the store cannot be used."""
    safe_url = without_password(url)
    try:
        check_url(url)
        store = store_from_url(url)
        if (path := missing_file(store)) is not None:
            return [_no_file(path, safe_url)]
        async with asyncio.timeout(STORE_LIMIT_S):
            return await _open_and_check(store, safe_url)
    except SchemaMismatch as error:
        advice = "pip install --upgrade callsheet" if "upgrade" in str(error) else "run: callsheet migrate"
        return [bad("schema", str(error), advice)]
    except TimeoutError:
        return [
            bad("store", f"{safe_url} does not answer within {STORE_LIMIT_S:g} s", "is the server up, the port open?")
        ]
    except CallsheetError as error:
        return [bad("store", f"{safe_url}: {error}", "see --database-url and CALLSHEET_DATABASE_URL")]
    except Exception as error:  # noqa: BLE001 - every failure becomes a finding
        return [bad("store", f"{safe_url}: {type(error).__name__}: {error}", "see --database-url")]


def _no_file(path: Path, safe_url: str) -> Finding:
    folder = path.absolute().parent
    if not os.access(folder, os.W_OK):
        return bad(
            "store", f"{safe_url}: the folder {folder} does not exist or cannot be written", f"mkdir -p {folder}"
        )
    return warning("store", f"{safe_url} does not exist yet", "callsheet migrate makes it, or the first worker")


async def _open_and_check(store: Store, safe_url: str) -> list[Finding]:
    try:
        with _warnings() as messages:
            await store.open()
        return [
            good("store", f"{safe_url} is open, its schema is current"),
            *_durability(store, messages),
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
    """Collect the warnings that a store logs inside the block: some are about a server's settings."""
    messages: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    listener, log = Listener(logging.WARNING), logging.getLogger("callsheet")
    log.addHandler(listener)
    propagates, log.propagate = log.propagate, False
    try:
        yield messages
    finally:
        log.removeHandler(listener)
        log.propagate = propagates


def _durability(store: Store, messages: list[str]) -> list[Finding]:
    risks = [advice for words, advice in RISKS.items() if words in store.durability]
    own = warning("durability", store.durability, "; ".join(risks)) if risks else good("durability", store.durability)
    return [own, *(warning("server", text) for text in messages)]


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
    times_ms: list[float] = []
    for _ in range(ROUND_TRIPS):
        start = time.perf_counter()
        await store.paused_queues()  # a small read, which SQLite's clock is not
        times_ms.append((time.perf_counter() - start) * 1000)
    middle = statistics.median(times_ms)
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
    """Report steps of the store's clock within a day, as the housekeeping recorded them."""
    mark, now = await read_mark(store), await store.now()
    recent = [step for step in (mark.steps if mark else ()) if abs(now - step.at) < DAY_MS]
    if recent:
        times = f"{len(recent)} times within a day, the last" if len(recent) > 1 else "once within a day,"
        advice = "see why it was wrong, and keep it right with NTP; jobs that waited were moved"
        return warning("clock steps", f"{times} {describe(recent[-1])}", advice)
    return good("clock steps", "none within a day")


async def _queues(store: Store) -> list[Finding]:
    counts, paused = await store.counts(), await store.paused_queues()
    findings: list[Finding] = []
    for queue in sorted(counts.keys() | paused):
        words = ", ".join(f"{count} {status.value}" for status, count in counts.get(queue, {}).items() if count)
        name, text = f"queue {queue}", words or "empty"
        if queue in paused:
            findings.append(warning(name, f"paused; {text}", f"callsheet jobs resume {queue}"))
        else:
            findings.append(Finding(Mark.GOOD, name, text))
    dead = sum(by_status.get(Status.DEAD_LETTER, 0) for by_status in counts.values())
    letters = warning("dead letters", str(dead), "callsheet jobs dead") if dead else good("dead letters", "none")
    return [*(findings or [good("queues", "no jobs yet")]), letters]


async def check_transport(database_url: str, redis_url: str | None) -> list[Finding]:
    """Return one finding about the transport; none without a transport."""
    if not redis_url:
        return []
    safe_url = without_password(redis_url)
    try:
        if store_from_url(database_url).streams:
            return [warning("transport", "the store is Redis itself and needs no other", "unset CALLSHEET_REDIS_URL")]
        async with asyncio.timeout(TRANSPORT_LIMIT_S):
            return [await _check_streams(redis_url, safe_url)]
    except ModuleNotFoundError as error:
        return [bad("transport", f"the driver is missing ({error.name})", "pip install 'callsheet[redis]'")]
    except (StoreUnavailable, TimeoutError) as error:
        reason = str(error) or f"no answer within {TRANSPORT_LIMIT_S:g} s"
        return [warning("transport", f"{safe_url}: {reason}", "jobs are found by polling until it is back")]
    except CallsheetError as error:
        return [bad("transport", f"{safe_url}: {error}", "see --redis-url and CALLSHEET_REDIS_URL")]


async def _check_streams(redis_url: str, safe_url: str) -> Finding:
    from callsheet.engine.transport.wire import Wire  # noqa: PLC0415 - its driver is an extra

    wire = Wire(redis_url)
    try:
        version = await wire.version()
        start = time.perf_counter()
        streams = await wire.lengths()
        took_ms = (time.perf_counter() - start) * 1000
    finally:
        await wire.close()
    messages = f"{sum(streams.values())} messages in {len(streams)} streams"
    return good("transport", f"{safe_url}, Redis {version}, {took_ms:.2f} ms, {messages}")


async def check_objects(url: str | None) -> list[Finding]:
    """Return one finding about the object storage; none without one."""
    if not url:
        return []
    try:
        objects = objects_from_url(url)
        if (folder := _missing_folder(url)) is not None:
            return [warning("objects", f"{folder} does not exist yet", "the first file that is kept makes it")]
        async with asyncio.timeout(OBJECTS_LIMIT_S), objects:
            return [await _probe_objects(objects)]
    except TimeoutError:
        return [bad("objects", f"no answer within {OBJECTS_LIMIT_S:g} s", "is S3_ENDPOINT right, the server up?")]
    except ObjectsForbidden as error:
        return [bad("objects", f"{error}", "see S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY and what they may do")]
    except ObjectsUnavailable as error:
        return [bad("objects", f"{error}", "is S3_ENDPOINT right, the server up, the disk full?")]
    except ObjectsError as error:
        return [bad("objects", f"{error}", "see --objects-url and CALLSHEET_OBJECTS_URL")]


def _missing_folder(url: str) -> Path | None:
    """Return the folder of a file: URL if it does not exist: a check must not create it."""
    parts = urlsplit(url)
    folder = Path(unquote(parts.path))
    return folder if parts.scheme == "file" and not folder.exists() else None


async def _probe_objects(objects: Objects) -> Finding:
    key = f"doctor/{new_id()}"
    start = time.perf_counter()
    await objects.put(key, PROBE, only_if_absent=True)
    same = await objects.get(key) == PROBE
    await objects.delete(key)
    took_ms = (time.perf_counter() - start) * 1000
    if not same or await objects.exists(key):
        return bad("objects", f"{objects.place} does not keep what it is given", "is it a real S3?")
    return good("objects", f"{objects.place}: written, read and deleted in {took_ms:.0f} ms")
