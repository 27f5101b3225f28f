"""Workers: what takes jobs from the engine, runs the user's functions and settles what became of them."""

from .runner import Worker

__all__ = ["Worker"]
