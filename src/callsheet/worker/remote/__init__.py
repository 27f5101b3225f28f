"""Remote workers: run the same tasks with jobs from a server, over outbound HTTP alone."""

from .caller import ServerAway, ServerRefused, WorkerRefused
from .options import ENROLMENT, RemoteOptions
from .worker import RemoteWorker

__all__ = ["ENROLMENT", "RemoteOptions", "RemoteWorker", "ServerAway", "ServerRefused", "WorkerRefused"]
