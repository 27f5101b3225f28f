"""A worker that has nothing but outbound HTTP: the same tasks, unchanged, with their jobs on a server far away."""

from .answers import ServerAway, ServerRefused, WorkerRefused
from .options import ENROLMENT, RemoteOptions
from .worker import RemoteWorker

__all__ = ["ENROLMENT", "RemoteOptions", "RemoteWorker", "ServerAway", "ServerRefused", "WorkerRefused"]
