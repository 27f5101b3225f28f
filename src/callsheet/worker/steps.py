"""Steps: parts of a task whose results are kept with the job, so that a later attempt skips them.

    async with ctx.step("voice") as step:
        if not step.done:
            step.result = await speak(text)
    voice = step.result

or in one line: `voice = await ctx.step("voice").run(speak, text)`. In a plain function: `with`, and `run_blocking`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from callsheet.kernel import commands
from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.job import RESERVED_PREFIX
from callsheet.kernel.wire import decode, encode

if TYPE_CHECKING:
    from callsheet.engine.resuming import Steps

    from .plane import JobSource
    from .run import Run

STEP_LIMIT_BYTES = 1024 * 1024
STEP_WAIT_S = 60.0


def checked_name(name: str) -> str:
    """Return the step's name; raises InvalidInput for a reserved prefix."""
    if name.startswith(RESERVED_PREFIX):
        raise InvalidInput(f"names of steps do not begin with {RESERVED_PREFIX}; {name[:100]!r} needs another name")
    return name


class Step:
    """One step. `done` is True if an earlier attempt completed the step; then `result` holds its stored result."""

    def __init__(self, name: str, run: Run, engine: JobSource) -> None:
        self.name = checked_name(name)
        self.done = False
        self.result: Any = None
        self._run = run
        self._engine = engine

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the stored result, or call the function and store its result."""
        async with self as step:
            if not step.done:
                value = function(*args, **kwargs)
                step.result = await value if inspect.isawaitable(value) else value
        return self.result

    def run_blocking(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the stored result, or call the plain function in this thread and store its result."""
        with self as step:
            if not step.done:
                step.result = function(*args, **kwargs)
        return self.result

    async def __aenter__(self) -> Self:
        self._recall((await self._engine.steps(self._run.job)).results)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self.done:
            await self._run.report(self._keep())
            self.done = True

    def __enter__(self) -> Self:
        steps = asyncio.run_coroutine_threadsafe(self._steps(), self._run.flusher.loop)
        self._recall(steps.result(STEP_WAIT_S).results)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self.done:
            self._run.report(self._keep()).wait(STEP_WAIT_S)
            self.done = True

    async def _steps(self) -> Steps:
        return await self._engine.steps(self._run.job)

    def _recall(self, results: dict[str, str]) -> None:
        if self.name in results:
            self.done, self.result = True, decode(results[self.name])

    def _keep(self) -> Callable[[Any], Any]:
        data = encode(self.result, limit_bytes=STEP_LIMIT_BYTES)
        return lambda job: commands.checkpoint(job, self.name, data)
