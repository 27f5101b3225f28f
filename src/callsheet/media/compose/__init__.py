"""Make a narrated video from a script in Markdown: script → voice → visuals → timeline → MP4. Knows nothing of jobs.

`stages.compose` is the whole task. Its parts work alone, too: `markdown.parse`, `voice.speak`, `stages.draw`,
`render.plan` and `render.render`. Code that opens a picture or loads the voice runs in a sandboxed child.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .artifacts import FolderShelf
    from .sources import from_folder
    from .stages import Composed, Parts, Request, compose

__all__ = ["Composed", "FolderShelf", "Parts", "Request", "compose", "from_folder"]
_HOMES = {"FolderShelf": "artifacts", "from_folder": "sources"}


def __getattr__(name: str) -> Any:
    """Load a part when its name is first used: a child that draws needs little of this."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'stages')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
