"""The longest waits of tests, and when a promise of seconds is checked.

No test depends on the speed of the machine. A test waits at least PATIENCE_S for an event that must come; an event that
must not be waited for would take far longer than that, or never come.
"""

from __future__ import annotations

import os

DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
PACE = bool(os.environ.get("CALLSHEET_PACE"))
PATIENCE_S = 60.0


def within(promised_s: float) -> float:
    """Return the limit to check: `promised_s` with CALLSHEET_PACE=1, on a quiet machine; else PATIENCE_S."""
    return promised_s if PACE else PATIENCE_S
