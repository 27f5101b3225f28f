"""How long a session or a ticket is good for, by a clock that may step: never longer than a whole life from now."""

from __future__ import annotations

from callsheet.store.clock import TOLERANCE_MS


def is_good(expires_at: int, now: int, life_s: float) -> bool:
    """Whether it is not over yet. What has more than a whole life left was made by a clock that was ahead: it is."""
    return now < expires_at <= now + round(life_s * 1000) + TOLERANCE_MS
