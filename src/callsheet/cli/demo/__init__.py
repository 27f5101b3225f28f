"""`callsheet demo`: everything once, here. `home` has the places, `command` what runs, `steps` what happens."""

from .command import command

__all__ = ["command"]
