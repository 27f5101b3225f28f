"""The engine: the store's verbs with telemetry, external commands, watching, schedules and housekeeping."""

from callsheet.kernel.job import NewJob
from callsheet.store.protocol import ClaimRequest

from .engine import Engine
from .housekeeping import Housekeeping
from .ids import new_id

__all__ = ["ClaimRequest", "Engine", "Housekeeping", "NewJob", "new_id"]
