"""`callsheet demo`: everything once, on this machine. `home` has the places, `story` what happens, `steps` how."""

from .command import command

__all__ = ["command"]
