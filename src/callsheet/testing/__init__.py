"""Tools for testing your tasks: the real store and the real worker in this process, on a virtual clock.

async with harness(app) as jobs:
    job = await resize.enqueue(url="x")
    await jobs.run()
    assert await jobs.result(job) == 640
"""

from .clock import Clock
from .harness import Harness, harness, harness_sync

__all__ = ["Clock", "Harness", "harness", "harness_sync"]
