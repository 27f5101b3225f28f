"""Language models: chat, plans, code, embeddings, answers from documents, and tools in child processes.

This package knows nothing of jobs: `callsheet.contracts.redis_gateway.tasks` has the tasks. Nothing is imported here
before it is asked for, so that a tool's child process starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tools import Limits, Tools

__all__ = ["Limits", "Tools"]


def __getattr__(name: str) -> Any:
    """Load the tools when one of their names is first used."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.tools"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
