"""Run a tool in its own process. The order goes in by stdin, the answer comes out by stdout, both as JSON.

The child leads a session and adopts orphaned descendants, so that all of its processes can be found and killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .descendants import descendants, kill_group, kill_session
from .errors import ToolFailed, ToolStopped

LOOK_S = 0.05
PIPES_S = 1.0
REAP_S = 5.0
STDERR_CHARS = 2_000
READ_BYTES = 64 * 1024


class Order(NamedTuple):
    """One tool call. `limits` holds the fields of `Limits`."""

    place: str
    name: str
    arguments: str
    limits: dict[str, Any]


async def run(order: Order, folder: Path, path: Sequence[str]) -> Any:
    """Return the tool's result. Raises ToolFailed or ToolStopped. No process of the tool survives this call."""
    process = await _start(order, folder, path)
    try:
        async with asyncio.timeout(order.limits["wall_s"]):
            out, stderr_tail = await _conversation(process, order)
            code = await process.wait()
    except TimeoutError:
        raise ToolStopped(f"tool {order.name} took longer than {order.limits['wall_s']:g} s") from None
    finally:
        await _end(process)
    return _result(order, out, stderr_tail, code)


async def _start(order: Order, folder: Path, path: Sequence[str]) -> Process:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),  # keeps ~/.netrc and the like from tools
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, path)),  # the child removes it from its environment
    }
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "callsheet.llm.tool_child", order.place),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )


async def _conversation(process: Process, order: Order) -> tuple[bytes, str]:
    """Return stdout and the tail of stderr, while `_watch` counts the child's processes."""
    assert process.stdin is not None  # noqa: S101 - all three are pipes
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    watch = asyncio.create_task(_watch(process, order))
    talk = asyncio.gather(
        _tell(process.stdin, order),
        _read(process.stdout, order.limits["output_kb"] * 1024, order.name),
        _tail(process.stderr),
    )
    either: set[asyncio.Future[Any]] = {watch, talk}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if watch.done():
            watch.result()
            await asyncio.wait({talk}, timeout=PIPES_S)
        if not talk.done():
            raise ToolFailed(f"tool {order.name} died, and something that it started still holds its output")
        _, out, stderr_tail = talk.result()
        return out, stderr_tail
    finally:
        watch.cancel()
        talk.cancel()
        await asyncio.gather(watch, talk, return_exceptions=True)


async def _tell(stdin: asyncio.StreamWriter, order: Order) -> None:
    message = {"name": order.name, "arguments": order.arguments, "limits": order.limits}
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the child died; its exit code says more
        stdin.write(json.dumps(message).encode() + b"\n")
        await stdin.drain()  # stdin stays open: its end would mean that the worker died


async def _read(stdout: asyncio.StreamReader, limit_bytes: int, name: str) -> bytes:
    out = bytearray()
    while chunk := await stdout.read(READ_BYTES):
        out += chunk
        if len(out) > limit_bytes:
            raise ToolStopped(f"tool {name} returned more than {limit_bytes // 1024} KB")
    return bytes(out)


async def _tail(stderr: asyncio.StreamReader) -> str:
    """Return the last characters of stderr; earlier output is discarded."""
    last = b""
    while chunk := await stderr.read(READ_BYTES):
        last = (last + chunk)[-4 * STDERR_CHARS :]
    return last.decode("utf-8", "replace")[-STDERR_CHARS:]


async def _watch(process: Process, order: Order) -> None:
    """Wait until the child ends. Raise ToolStopped once it has too many processes.

    The system's process limit cannot serve here: it counts all processes of a user and does not bind root.
    """
    most = order.limits["processes"]
    while process.returncode is None:
        if len(descendants(process.pid)) + 1 > most:
            raise ToolStopped(f"tool {order.name} started more than {most} processes")
        await asyncio.sleep(LOOK_S)
    kill_group(process.pid)


async def _end(process: Process) -> None:
    if process.returncode is None:
        kill_session(process.pid)
    else:
        kill_group(process.pid)
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REAP_S):
            await process.wait()


def _result(order: Order, out: bytes, stderr_tail: str, code: int) -> Any:
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
