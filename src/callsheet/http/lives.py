"""Expiry of sessions and tickets by a clock that may step: neither is valid longer than one lifetime from now."""

from __future__ import annotations

from callsheet.store.clock import TOLERANCE_MS


def is_good(expires_at: int, now: int, life_s: float) -> bool:
    """Return whether a session or ticket is valid at `now`.

    A remaining time above one lifetime means that its creator's clock was ahead: such a session or ticket is expired.
    """
    return now < expires_at <= now + round(life_s * 1000) + TOLERANCE_MS
