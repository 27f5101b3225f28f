"""The allow-list: functions that jobs may call by name, each in a child process with limits.

gateway_tools = Tools()

@gateway_tools.tool
def word_count(text: str) -> int: ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, overload

from pydantic import TypeAdapter
from pydantic_core import to_json

from callsheet.kernel.errors import InvalidTask

from .errors import UnknownTool
from .signature import check, schema_of
from .tool_process import Order, run

F = TypeVar("F", bound=Callable[..., Any])


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
    """One function and its limits."""

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
