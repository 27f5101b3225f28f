"""How long tests wait, and when they hold the program to seconds.

No test decides by how fast the machine is. What must come is waited for, for PATIENCE_S at least; what must not be
waited for would take far longer than that, or would never come.
"""

from __future__ import annotations

import os

DEEP = bool(os.environ.get("CALLSHEET_DEEP"))
PACE = bool(os.environ.get("CALLSHEET_PACE"))
PATIENCE_S = 60.0


def within(promised_s: float) -> float:
    """The limit of a promise: as promised with CALLSHEET_PACE=1, on a quiet machine; else only patience has an end."""
    return promised_s if PACE else PATIENCE_S
