"""Callbacks: signed, guarded and retried webhook deliveries of the events that settlements write to the outbox."""

from __future__ import annotations

from .answers import Limits
from .deliver import Deliveries
from .endpoints import Endpoint, Endpoints, Sealer
from .guard import Rules
from .options import DeliveryOptions
from .post import Answer, Outlet, guarded_post

__all__ = [
    "Answer",
    "Deliveries",
    "DeliveryOptions",
    "Endpoint",
    "Endpoints",
    "Limits",
    "Outlet",
    "Rules",
    "Sealer",
    "guarded_post",
]
