"""Callsheet: a durable job system for long, heavy work."""

__version__ = "0.1.0"
