"""The library's public interface: an app declares tasks, enqueues their jobs, and returns job handles."""

from .application import Callsheet
from .handle import JobHandle
from .task import Task

__all__ = ["Callsheet", "JobHandle", "Task"]
