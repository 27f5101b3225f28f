"""Plain functions in processes of their own: for work that holds the interpreter, and that can be killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Context
    from .definition import Definition
    from .run import Run


class Processes:
    """One child process for each function that runs."""

    async def call(self, definition: Definition, context: Context, arguments: dict[str, Any]) -> Any:
        raise RuntimeError("not yet")

    def kill(self, run: Run) -> None: ...

    def close(self) -> None: ...
