"""The section `http`: what its parts measure on one kind of store, kept together."""

from __future__ import annotations

from importlib.metadata import version

from bench.http import posts, streams
from bench.http.processes import APART, database_apart
from bench.measure import keep
from bench.places import server_versions

PROGRAMS = ("uvicorn", "granian")
PACKAGES = ("fastapi", "starlette", "uvicorn", "httptools", "granian")


async def measure(kind: str, *, quick: bool) -> None:
    """New jobs and event streams. A quick run has granian for new jobs on SQLite alone."""
    programs = PROGRAMS if not quick or kind == "sqlite" else PROGRAMS[:1]
    with database_apart(kind):
        figures = {
            "apart": APART,
            "posts": await posts.measure(kind, programs, quick=quick),
            "streams": await streams.measure(kind, PROGRAMS[:1] if quick else PROGRAMS, quick=quick),
            "servers": {**await server_versions(), **{package: version(package) for package in PACKAGES}},
        }
    keep(f"http-{kind}", figures, quick=quick)
