"""Which attempt the present code runs for. Tasks that a function starts and threads of `to_thread` know it, too.

A thread that a function starts by itself does not: hand it what it needs, such as `ctx.objects`.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Run

RUN: ContextVar[Run | None] = ContextVar("callsheet_run", default=None)
