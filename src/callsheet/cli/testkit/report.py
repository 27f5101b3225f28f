"""What the test-kit checks, and how it tells what held."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from callsheet.cli.drawing import Console, Table

S = TypeVar("S")
MARKS = {"held": "[green]✓[/]", "broken": "[red]✗[/]", "skipped": "–"}


class Broken(Exception):
    """A clause did not hold; the message says what was seen instead."""


class Skipped(Exception):
    """A clause cannot be checked here; the message says why."""


class Verdict(StrEnum):
    """What came of a check."""

    HELD = "held"
    BROKEN = "broken"
    SKIPPED = "skipped"


class Check(NamedTuple, Generic[S]):
    """One clause of the contract, or with `extension` one of ours, and how it is checked on a subject."""

    clause: str
    claim: str
    run: Callable[[S], Awaitable[None]]
    extension: bool = False
    slow: bool = False


class Found(NamedTuple):
    """What came of one check."""

    clause: str
    claim: str
    verdict: Verdict
    told: str
    took_s: float
    extension: bool


async def judge(check: Check[S], subject: S) -> Found:
    """Run one check; whatever else it raises is broken, too."""
    start = time.monotonic()
    try:
        await check.run(subject)
        verdict, told = Verdict.HELD, ""
    except Skipped as why:
        verdict, told = Verdict.SKIPPED, str(why)
    except (Broken, TimeoutError) as broken:
        verdict, told = Verdict.BROKEN, str(broken) or "it took too long"
    except Exception as error:  # noqa: BLE001 - one check must not take the others with it
        verdict, told = Verdict.BROKEN, f"{type(error).__name__}: {error}"
    return Found(check.clause, check.claim, verdict, told, time.monotonic() - start, check.extension)


def skipped(check: Check[S], why: str) -> Found:
    """A check that was not made."""
    return Found(check.clause, check.claim, Verdict.SKIPPED, why, 0.0, check.extension)


def show(found: list[Found], title: str) -> None:
    """A table on standard output, and a line that sums it up."""
    table = Table(title=title)
    for heading in ("", "clause", "what must hold", "s", "what was seen"):
        table.add_column(heading, justify="right" if heading == "s" else "left")
    for one in found:
        claim = f"{one.claim} [dim](extension)[/]" if one.extension else one.claim
        table.add_row(MARKS[one.verdict], one.clause, claim, f"{one.took_s:.1f}", one.told)
    console = Console()
    console.print(table)
    counts = {verdict: sum(one.verdict is verdict for one in found) for verdict in Verdict}
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))


def as_json(found: list[Found]) -> list[dict[str, object]]:
    """The same for programs."""
    return [{**one._asdict(), "verdict": one.verdict.value, "took_s": round(one.took_s, 3)} for one in found]


def need(fact: object, otherwise: str) -> None:
    """Raise Broken unless it is so."""
    if not fact:
        raise Broken(otherwise)
