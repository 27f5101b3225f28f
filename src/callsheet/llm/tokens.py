"""Group an answer's text pieces, so that at most twenty events a second are written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self

from callsheet.kernel.errors import CallsheetError

PAUSE_S = 0.05
PIECE_CHARS = 16_000  # an event may have 200 KB


class Tokens:
    """Collect text pieces and emit them in groups. Leaving the block without an error emits the rest."""

    def __init__(self, emit: Callable[[str], object], pause_s: float = PAUSE_S) -> None:
        self._emit = emit
        self._pause_s = pause_s
        self._waiting: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if kind is None:
            self.flush()

    def __call__(self, text: str) -> None:
        """Add a piece of text; the first piece is emitted at once."""
        self._waiting.append(text)
        if self._timer is None:
            if self._loop.time() >= self._next_at:
                self.flush()
            else:  # the model may fall silent: collected text must not wait for the next piece
                self._timer = self._loop.call_at(self._next_at, self._flush_later)

    def flush(self) -> None:
        """Emit all collected text now."""
        text = "".join(self._waiting)
        self._waiting.clear()
        self._next_at = self._loop.time() + self._pause_s
        for start in range(0, len(text), PIECE_CHARS):
            self._emit(text[start : start + PIECE_CHARS])

    def _flush_later(self) -> None:
        self._timer = None
        with contextlib.suppress(CallsheetError):  # the claim is lost: the task learns of that by itself
            self.flush()
