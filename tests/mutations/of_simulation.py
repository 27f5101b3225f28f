"""Guards that the simulation proves: taken out, worlds in which things of one kind go wrong turn red."""

from __future__ import annotations

from tests.mutations.guard import Guard

SEEDS = "tests/simulation/test_simulation.py"
KIND = f"{SEEDS}::test_every_promise_holds_where_things_of_one_kind_go_wrong"


def simulated(name: str, file: str, before: str, after: str, kind: str) -> Guard:
    return Guard("kernel", f"simulated: {name}", file, before, after, f"{KIND}[{kind}]")


SIMULATION = [
    simulated(
        "an outcome waits for the store",
        "worker/flush.py",
        "if time.monotonic() > until + self.patience_s:",
        "if True:",
        "refusals",
    ),
    simulated(
        "one write of a run at a time",
        "worker/flush.py",
        "if run.sending:",
        "if False:",
        "slowness",
    ),
    simulated(
        "only an error about a settlement ends its job",
        "worker/flush.py",
        "if together or is_about_settlement(error):",
        "if not isinstance(error, StoreUnavailable):",
        "mistakes",
    ),
    simulated(
        "an outage is no failure",
        "worker/execute.py",
        "if (outage := outage_of(error)) is not None:",
        "if (outage := outage_of(error)) is not None and False:",
        "calm",
    ),
    simulated(
        "context variables end with their job",
        "worker/slots.py",
        "if contextvars.copy_context() != begun:",
        "if False:",
        "calm",
    ),
    simulated(
        "what was lost early is listed before it begins",
        "worker/shift.py",
        "if (job.lease_losses or job.error) and ahead is not None and needs_listing(job):",
        "if False:",
        "crashes",
    ),
    simulated(
        "what was listed as begun is an attempt",
        "engine/begun.py",
        'if job.job_id not in lists[job.worker_id or ""]',
        "if lists is not None",
        "crashes",
    ),
    simulated(
        "what only waited in a lost worker is no attempt",
        "engine/housekeeping.py",
        "begun=job.job_id not in early",
        "begun=True",
        "crashes",
    ),
    simulated(
        "work stops when the lease runs out",
        "worker/heartbeat.py",
        "if run.expires_at < now and run.stop is not Stop.LOST and not run.settled:",
        "if False:",
        "cuts",
    ),
    simulated(
        "a callback that was refused goes out again",
        "outbox/decide.py",
        "    if not outcome.ok:\n        reason",
        "    if False:\n        reason",
        "receivers",
    ),
]
