"""The engine: the store's verbs with telemetry, commands from outside, watching, schedules and housekeeping."""

from .engine import Engine
from .housekeeping import Housekeeping

__all__ = ["Engine", "Housekeeping"]
