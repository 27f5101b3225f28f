"""Workers claim jobs from the engine, run the user's functions, and settle the outcomes."""

from .health import Gauges, Health
from .runner import Worker

__all__ = ["Gauges", "Health", "Worker"]
