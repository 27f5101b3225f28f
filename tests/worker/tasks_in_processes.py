"""Tasks of tests that have to be importable, since a child process runs them."""

from __future__ import annotations

from pathlib import Path


async def async_writes(target: str) -> str:
    return thread_writes(target)


def thread_writes(target: str) -> str:
    with Path(target).open("w") as file:
        file.write("text")
    return "written"


process_writes = thread_writes


def double(n: int = 0) -> int:
    """Return twice a number."""
    return n * 2


async def double_soon(n: int = 0) -> int:
    """Return twice a number, in the event loop."""
    return n * 2
