"""Run a tool in its own process. The order goes in by stdin, the answer comes out by stdout, both as JSON.

The child leads a session and adopts orphaned descendants, so that all of its processes can be found and killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from callsheet.sandbox.processes import (
    READ_BYTES,
    Bounds,
    Ended,
    descendants,
    kill,
    output_of,
    run_child,
    send,
    start_alone,
)

from .errors import ToolFailed, ToolStopped

LOOK_S = 0.05


class Order(NamedTuple):
    """One tool call. `limits` holds the fields of `Limits`."""

    place: str
    name: str
    arguments: str
    limits: dict[str, Any]


async def run(order: Order, folder: Path, path: Sequence[str]) -> Any:
    """Return the tool's result. Raises ToolFailed or ToolStopped. No process of the tool survives this call."""
    bounds = Bounds(
        order.limits["wall_s"],
        ToolStopped(f"tool {order.name} took longer than {order.limits['wall_s']:g} s"),
        ToolFailed(f"tool {order.name} died, and something that it started still holds its output"),
        grace_s=0,
    )
    process = await _start(order, folder, path)
    return _result(order, await run_child(process, _talk(process, order), bounds, _watch(process, order)))


async def _start(order: Order, folder: Path, path: Sequence[str]) -> Process:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),  # keeps ~/.netrc and the like from tools
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, path)),  # the child removes it from its environment
    }
    command = (sys.executable, "-P", "-m", "callsheet.llm.tool_child", order.place)
    return await start_alone(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=folder, env=environment)


async def _talk(process: Process, order: Order) -> bytes:
    """Send the order and return the output. stdin stays open: its end would mean that the worker died."""
    message = {"name": order.name, "arguments": order.arguments, "limits": order.limits}
    await send(process, json.dumps(message).encode() + b"\n")
    out, most_kb = bytearray(), order.limits["output_kb"]
    while chunk := await output_of(process).read(READ_BYTES):
        out += chunk
        if len(out) > most_kb * 1024:
            raise ToolStopped(f"tool {order.name} returned more than {most_kb} KB")
    return bytes(out)


async def _watch(process: Process, order: Order) -> None:
    """Return when the child has ended. Raise ToolStopped once it has too many processes.

    The system's process limit cannot serve here: it counts all processes of a user and does not bind root.
    """
    most = order.limits["processes"]
    while process.returncode is None:
        if len(descendants(process.pid)) + 1 > most:
            raise ToolStopped(f"tool {order.name} started more than {most} processes")
        await asyncio.sleep(LOOK_S)
    kill(process)  # processes of its group may still hold the pipes


def _result(order: Order, ended: Ended[bytes]) -> Any:
    out, code, stderr_tail = ended
    if code == -signal.SIGXCPU:
        raise ToolStopped(f"tool {order.name} used more than {order.limits['cpu_s']} s of CPU time")
    try:
        answer = json.loads(out)
        if "result" in answer:
            return answer["result"]
        error = answer["error"]
        message = f"{error['type']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise ToolFailed(
            f"tool {order.name} ended without an answer, by {how}; it printed: {stderr_tail[-500:]!r}"
        ) from None
    if error["type"] == "MemoryError":
        raise ToolStopped(f"tool {order.name} needed more than {order.limits['memory_mb']} MB of memory")
    raise ToolFailed(f"tool {order.name} failed, {message}")
