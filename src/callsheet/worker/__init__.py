"""Workers: what takes jobs from the engine, runs the user's functions and settles what became of them."""

from .gauges import Gauges
from .health import Health
from .runner import Worker

__all__ = ["Gauges", "Health", "Worker"]
