"""A guard: the guarded text, its replacement, and the test that must fail."""

from __future__ import annotations

from typing import NamedTuple


class Guard(NamedTuple):
    """Remove `before` from `file` (put `after` there), and `test` must fail on `store`."""

    store: str
    name: str
    file: str
    before: str
    after: str
    test: str
    times: int = 1


CONFORMANCE = "tests/conformance"
SETTLE = f"{CONFORMANCE}/test_settle.py"
LEASE = f"{CONFORMANCE}/test_lease.py"
CLAIM = f"{CONFORMANCE}/test_claim.py"
EVENTS = f"{CONFORMANCE}/test_events.py"
ENQUEUE = f"{CONFORMANCE}/test_enqueue.py"
DEPENDENCIES = f"{CONFORMANCE}/test_dependencies.py"
OUTBOX = f"{CONFORMANCE}/test_outbox.py"
KEEPING = f"{CONFORMANCE}/test_keeping.py"
STALE = f"{SETTLE}::test_a_stale_claim_cannot_write"
