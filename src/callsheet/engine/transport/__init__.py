"""Redis Streams as the transport of a SQL store. Needs the extra `redis`: import this package only on use."""

from .maintenance import Pace
from .messages import Place
from .transport import Transport

__all__ = ["Pace", "Place", "Transport"]
