"""`callsheet serve` with leases that are short: `python -m tests.storm.serve --port …`.

A remote worker's lease of 30 s and a delivery's of 60 s would make each kill cost as much, and a callback that was
refused often would be waited for longer than a storm lasts: pauses last 10 s at most. Nothing else differs.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from callsheet.cli import main
from callsheet.contracts.control_plane import claims
from callsheet.kernel.retry import OUTBOX
from callsheet.outbox import breaker, decide
from callsheet.outbox.shares import DeliveryOptions

claims.LEASE_S, claims.BEAT_S, claims.PROVISIONAL_S = 4.0, 1.0, 4.0
breaker.FIRST_OPEN_MS, breaker.MOST_OPEN_MS = 3_000, 10_000
SHORT = replace(OUTBOX, max_attempts=10_000, backoff=replace(OUTBOX.backoff, base_ms=1_000, cap_ms=10_000))
vars(decide)["OUTBOX"] = SHORT
_fields = DeliveryOptions._fields
DeliveryOptions.__new__.__defaults__ = tuple(
    3_000 if name == "lease_ms" else default for name, default in zip(_fields, DeliveryOptions(), strict=True)
)

if __name__ == "__main__":
    sys.argv[1:1] = ["serve"]
    main()
