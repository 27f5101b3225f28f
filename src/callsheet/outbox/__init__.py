"""Callbacks: signed, guarded and retried webhook deliveries of the events that settlements write to the outbox."""

from __future__ import annotations

from .deliver import Deliveries
from .endpoints import Endpoint, Endpoints, Sealer
from .shares import DeliveryOptions

__all__ = [
    "Deliveries",
    "DeliveryOptions",
    "Endpoint",
    "Endpoints",
    "Sealer",
]
