"""One server process: `python -m bench.http.serve jobs|workers|empty uvicorn|granian PORT STORE_URL`.

The server is composed as `callsheet serve` composes it; only the limits per key and per tenant are off, because one key
sends all requests.
"""

from __future__ import annotations

import os
import sys

import uvloop
from fastapi import FastAPI

from bench.http import empty
from callsheet.contracts.aura import routes as aura
from callsheet.contracts.control_plane import routes as control_plane
from callsheet.contracts.redis_gateway import routes, streams
from callsheet.engine import Engine
from callsheet.engine.quotas import NO_LIMITS
from callsheet.http.limits import Limits
from callsheet.http.server import BACKLOG, Server, ServerOptions, create_app, listen

LIMITS = Limits(streams=100_000, quota=NO_LIMITS)


def main() -> None:
    kind, program, port, url = sys.argv[1:]
    if program == "granian":
        os.environ["CALLSHEET_BENCH_APP"] = f"{kind} {url}"
        _granian(int(port))
    else:
        uvloop.run(Server(app_of(kind, url), [listen("127.0.0.1", int(port))]).run_until_stopped())


def app_of(kind: str, url: str) -> FastAPI:
    routers = [empty.router] if kind == "empty" else [routes.router, streams.router, control_plane.router, aura.router]
    return create_app(Engine.from_url(url), routers, ServerOptions(limits=LIMITS, housekeeping=kind != "empty"))


def granian_app() -> FastAPI:
    """What granian's worker process calls."""
    kind, _, url = os.environ["CALLSHEET_BENCH_APP"].partition(" ")
    return app_of(kind, url)


def _granian(port: int) -> None:
    from granian import Granian  # noqa: PLC0415 - uvicorn's process is not to carry it
    from granian.constants import HTTPModes, Interfaces, Loops  # noqa: PLC0415

    Granian(
        "bench.http.serve:granian_app",
        port=port,
        interface=Interfaces.ASGI,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        backpressure=20_000,  # each open stream counts, and its default would be the backlog
        log_enabled=False,
        factory=True,
    ).serve()


if __name__ == "__main__":
    main()
