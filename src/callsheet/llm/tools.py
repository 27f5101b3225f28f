"""The allow-list: functions that jobs may call by name, each in a child process with limits.

gateway_tools = Tools()

@gateway_tools.tool
def word_count(text: str) -> int: ...

A child leads a session and adopts orphaned descendants, so that all of its processes can be found and killed. stdin
takes the order as JSON, stdout returns the answer as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

from pydantic import TypeAdapter
from pydantic_core import to_json

from callsheet.kernel.errors import InvalidTask
from callsheet.sandbox.processes import (
    READ_BYTES,
    Bounds,
    Outcome,
    descendants,
    kill,
    output_of,
    run_child,
    send,
    start_alone,
)

from .errors import ToolFailed, ToolStopped, UnknownTool
from .signature import check, schema_of

F = TypeVar("F", bound=Callable[..., Any])

LOOK_S = 0.05


@dataclass(frozen=True)
class Limits:
    """Limits of one tool call. `processes` counts the tool itself and its descendants."""

    wall_s: float = 60.0
    cpu_s: int = 30
    memory_mb: int = 1024
    file_mb: int = 100
    open_files: int = 128
    processes: int = 16
    output_kb: int = 512


@dataclass(frozen=True)
class Tool:
    """A registered tool function and its limits."""

    name: str
    function: Callable[..., Any]
    limits: Limits

    @cached_property
    def schema(self) -> TypeAdapter[dict[str, Any]]:
        """The schema of the tool's arguments."""
        return schema_of(self.name, self.function)

    @property
    def place(self) -> str:
        """The import path for the child process: `module:qualname`."""
        return f"{self.function.__module__}:{self.function.__qualname__}"


class Tools:
    """Tools by name. A tool must be a top-level function of a module that a child process can import."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._tools: dict[str, Tool] = {}

    def __iter__(self) -> Any:
        return iter(self._tools.values())

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, /, *, name: str = "", **limits: float) -> Callable[[F], F]: ...
    def tool(self, function: Any = None, /, *, name: str = "", **limits: float) -> Any:
        """Register a function: `@tools.tool`, or `@tools.tool(name="count", wall_s=5)`. Returns it unchanged."""
        if function is None:
            return lambda later: self._add(later, name, limits)
        return self._add(function, name, limits)

    def _add(self, function: F, name: str, limits: dict[str, Any]) -> F:
        name = name or function.__name__
        if name in self._tools:
            raise InvalidTask(f"two tools are called {name!r}; give one of them another name=")
        if "<" in function.__qualname__:
            raise InvalidTask(f"tool {name}: a child process cannot find it; declare it at the top level of a module")
        if unknown := limits.keys() - asdict(self.limits).keys():
            raise InvalidTask(f"tool {name}: no limit {', '.join(sorted(unknown))}")
        tool = Tool(name, function, replace(self.limits, **limits))
        _ = tool.schema  # report an unsupported signature at declaration
        self._tools[name] = tool
        return function

    def get(self, name: str) -> Tool:
        """Return a tool by its name. Raises UnknownTool, which lists the registered names."""
        try:
            return self._tools[name]
        except KeyError:
            names = ", ".join(sorted(self._tools)) or "none"
            raise UnknownTool(f"there is no tool {name!r}; registered are: {names}") from None

    async def call(self, name: str, arguments: dict[str, Any], folder: Path) -> Any:
        """Call a tool with `folder` as its working folder. Raises InvalidPayload, LlmError."""
        tool = self.get(name)
        text = to_json(arguments)
        check(name, tool.schema, text)
        if tool.function.__module__ == "__main__":
            raise UnknownTool(f"tool {name} stands in the script that was started; move it to a module of its own")
        return await run(Order(tool.place, name, text.decode(), asdict(tool.limits)), folder, sys.path)


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
    """Return when the child has ended. Raise ToolStopped when more processes run than allowed.

    The system's process limit cannot serve here: it counts all processes of a user and does not bind root.
    """
    most = order.limits["processes"]
    while process.returncode is None:
        if len(descendants(process.pid)) + 1 > most:
            raise ToolStopped(f"tool {order.name} started more than {most} processes")
        await asyncio.sleep(LOOK_S)
    kill(process)  # processes of its group may still hold the pipes


def _result(order: Order, outcome: Outcome[bytes]) -> Any:
    out, code, stderr_tail = outcome
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
