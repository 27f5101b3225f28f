"""The library's face: an app holds tasks, enqueues their jobs, and hands out handles to them."""

from .application import Callsheet
from .handle import JobHandle
from .task import Task

__all__ = ["Callsheet", "JobHandle", "Task"]
