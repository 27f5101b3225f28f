"""The work: tasks of several kinds that write to the world's journal, and the jobs of a seed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Iterator
from contextvars import ContextVar
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from callsheet.engine.ids import new_id
from callsheet.kernel.contracts import write_policy
from callsheet.kernel.errors import Outage
from callsheet.kernel.job import NewJob, OnDependencyFailure
from callsheet.kernel.retry import RetryPolicy
from callsheet.worker.context import Context
from callsheet.worker.current import RUN
from callsheet.worker.definition import Definition
from callsheet.worker.signals import Fatal, Retry, Snooze

from .journal import Execution, Journal

if TYPE_CHECKING:
    from callsheet.kernel.job import Job

JOURNAL: ContextVar[Journal] = ContextVar("journal")
LEFT_BEHIND: ContextVar[str] = ContextVar("left_behind", default="")
STAGES = ("fetching", "processing", "uploading")
HOOK = "https://receiver.example/hook"
REQUESTERS = ("ann", "bob")


@contextlib.contextmanager
def execution() -> Iterator[Execution]:
    """Record this execution in the journal from start to end."""
    run = RUN.get()
    assert run is not None
    entry = JOURNAL.get().begin(run.job, LEFT_BEHIND.get())
    try:
        yield entry
        entry.how = "returned"
    except BaseException as error:
        entry.how = type(error).__name__
        raise
    finally:
        JOURNAL.get().end(entry)


async def short(lasts_ms: int) -> dict[str, Any]:
    with execution() as entry:
        if lasts_ms:
            await asyncio.sleep(lasts_ms / 1000)
        return entry.result()


async def chatty(ctx: Context, count: int) -> dict[str, Any]:
    with execution() as entry:
        for number in range(count):
            ctx.emit("word", claim=entry.claim_version, number=number)
            if number % 3 == 0:
                ctx.progress(100 * number / count)
            if number % 4 == 1:
                await asyncio.sleep(0.001 * number)
        entry.words = count
        return entry.result()


async def long(ctx: Context, parts: int, part_ms: int) -> dict[str, Any]:
    with execution() as entry:
        for number in range(parts):
            async with ctx.step(f"part {number}") as step:
                JOURNAL.get().step(entry, number, is_done=step.done, result=step.result)
                if not step.done:
                    await _work(entry, part_ms)
                    step.result = number * number
            JOURNAL.get().keep(entry, number)
            await ctx.progress(100 * (number + 1) / parts)
        return entry.result()


async def _work(entry: Execution, lasts_ms: int) -> None:
    for _ in range(max(1, lasts_ms // 500)):
        await asyncio.sleep(0.5)
        JOURNAL.get().tick(entry)


async def flaky(ctx: Context, failures: int) -> dict[str, Any]:
    with execution() as entry:
        await asyncio.sleep(0.01)
        if ctx.attempt <= failures:
            raise Retry("again", after="1s") if failures % 2 else ValueError("not yet")
        return entry.result()


async def fatal(ctx: Context) -> None:
    with execution():
        raise Fatal("never")


async def sleepy(ctx: Context, naps: int) -> dict[str, Any]:
    with execution() as entry:
        if entry.number <= naps:
            raise Snooze("2s")
        return entry.result()


async def starved(ctx: Context, outages: int) -> dict[str, Any]:
    with execution() as entry:
        if entry.number <= outages:
            raise Outage("the storage is away") if entry.number % 2 else OSError(errno.ENOSPC, "no room")
        return entry.result()


async def hopeless(ctx: Context) -> None:
    with execution():
        raise Outage("the storage is away for ever")


async def poison(ctx: Context) -> None:
    with execution() as entry:
        JOURNAL.get().kill(entry)
        await asyncio.sleep(0)


async def leaving(ctx: Context) -> dict[str, Any]:
    with execution() as entry:
        LEFT_BEHIND.set(entry.job_id)
        return entry.result()


async def slow(ctx: Context) -> None:
    with execution():
        await asyncio.sleep(60)


async def told(ctx: Context, status_webhook_url: str, ends: str) -> dict[str, Any]:
    with execution() as entry:
        for stage in STAGES:
            await ctx.stage(stage)
            await asyncio.sleep(0.2)
        if ends == "fatal":
            raise Fatal("never", code="bad_input")
        if ends == "failing" and ctx.attempt == 1:
            raise Retry("again", code="503", after="1s")
        return entry.result()


IMPATIENT = write_policy(RetryPolicy(max_attempts=2, outage_ms=5_000))
DEFINITIONS = {
    function.__name__: Definition(function.__name__, function, **options)
    for function, options in (
        (short, {}),
        (chatty, {}),
        (long, {"max_attempts": 6}),
        (flaky, {"max_attempts": 5}),
        (fatal, {}),
        (sleepy, {}),
        (starved, {}),
        (hopeless, {"max_attempts": 2, "retry": IMPATIENT}),
        (poison, {"max_attempts": 3}),
        (leaving, {}),
        (slow, {"max_attempts": 2, "timeout_s": 1.0}),
        (told, {"contract": "euterpe"}),
    )
}
DELIBERATE = {  # how an execution of each kind may fail an attempt, by the error's code
    "flaky": {"retry", "ValueError"},
    "fatal": {"fatal"},
    "hopeless": {"outage"},
    "slow": {"timeout"},
    "told": {"bad_input", "503"},
}


class Wish(NamedTuple):
    """A producer's planned job, with enqueue and cancel times."""

    at_s: float
    job: NewJob
    cancelled_after_s: float | None = None


def wishes(chance: Random, lasts_s: float) -> list[Wish]:
    """Return the jobs of a world, in order of their time."""
    wishes: list[Wish] = []
    for _ in range(chance.randint(6, 16)):
        wishes += _some(chance, chance.uniform(0.0, lasts_s * 0.7))
    return sorted(wishes, key=lambda wish: wish.at_s)


def _some(chance: Random, at_s: float) -> list[Wish]:
    match chance.choice(
        ("burst", "burst", "long", "long", "family", "limited", "unique", "told", "told", "odd", "odd")
    ):
        case "burst":
            crowd = [_new(chance, "short", lasts_ms=chance.choice((0, 1, 3))) for _ in range(chance.randint(8, 30))]
            others = [_any(chance) for _ in range(chance.randint(0, 4))]
            return [Wish(at_s, job) for job in _mixed(chance, crowd + others)]
        case "family":
            return [Wish(at_s, job) for job in _family(chance)]
        case "limited":
            key = f"key {chance.randint(1, 2)}"
            jobs = [_long(chance)._replace(concurrency_key=key, concurrency_limit=2) for _ in range(4)]
            return [Wish(at_s, job) for job in jobs]
        case "unique":
            same = f"one {chance.randint(1, 2)}"
            return [Wish(at_s + number, _any(chance)._replace(unique_key=same)) for number in range(3)]
        case "long":
            taken_back = chance.uniform(0.0, 8.0) if chance.random() < 0.3 else None
            return [Wish(at_s, _long(chance), taken_back)]
        case "told":
            return [Wish(at_s, _told(chance)) for _ in range(chance.randint(1, 3))]
    return [Wish(at_s, _any(chance)._replace(delay_ms=chance.choice((0, 0, 2_000))))]


def _mixed(chance: Random, jobs: list[NewJob]) -> list[NewJob]:
    chance.shuffle(jobs)
    return jobs


def _family(chance: Random) -> list[NewJob]:
    parents = [_any(chance) for _ in range(2)]
    child = _any(chance)._replace(
        depends_on=tuple(parent.job_id for parent in parents),
        on_dependency_failure=chance.choice(list(OnDependencyFailure)),
    )
    return [*parents, child, _any(chance)._replace(depends_on=(child.job_id,))]


def _any(chance: Random) -> NewJob:
    kind = chance.choice([name for name in DEFINITIONS if name not in ("long", "told", "short")])
    match kind:
        case "chatty":
            return _new(chance, kind, count=chance.randint(3, 20))
        case "flaky":
            return _new(chance, kind, failures=chance.randint(1, 3))
        case "sleepy":
            return _new(chance, kind, naps=chance.randint(1, 3))
        case "starved":
            return _new(chance, kind, outages=chance.randint(1, 3))
    return _new(chance, kind)


def _long(chance: Random) -> NewJob:
    parts, part_ms = chance.choice(((4, 500), (3, 2_000), (1, 18_000)))  # the last is longer than three leases
    return _new(chance, "long", parts=parts, part_ms=part_ms)


def _told(chance: Random) -> NewJob:
    ends = chance.choice(("well", "well", "failing", "fatal"))
    return _new(chance, "told", status_webhook_url=HOOK, ends=ends)


def _new(chance: Random, kind: str, **arguments: Any) -> NewJob:
    definition = DEFINITIONS[kind]
    new = definition.new_job(new_id(), definition.payload((), arguments))
    return new._replace(requester_id=chance.choice(REQUESTERS), priority=chance.choice((0, 0, 0, 1)))


def is_deliberate(job: Job, code: str) -> bool:
    """Return whether a job's task may have failed an attempt with this code."""
    return code in DELIBERATE.get(job.kind, ())
