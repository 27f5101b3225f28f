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
        "if copy_context() != context:",
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
        "engine/silent_workers.py",
        'if job.job_id not in lists[job.worker_id or ""]',
        "if lists is not None",
        "crashes",
    ),
    simulated(
        "what only waited in a lost worker is no attempt",
        "engine/housekeeping.py",
        "has_begun=job.job_id not in early",
        "has_begun=True",
        "crashes",
    ),
    simulated(
        "work stops when the lease runs out",
        "worker/heartbeat.py",
        "if run.expires_at < now and run.stop is not Stop.LOST and not run.is_settled:",
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
    simulated(
        "two batches at most on their way",
        "worker/flush.py",
        "if len(self._flights) < FLIGHTS:",
        "if True:",
        "slowness",
    ),
    simulated(
        "a worker on a full disk claims nothing",
        "worker/shift.py",
        "if self.disk.is_full():",
        "if False:",
        "disks",
    ),
    simulated(
        "an answer that was lost costs no attempt",
        "engine/silent_workers.py",
        "(*unlisted, *remote, *unheard)",
        "(*unlisted, *remote)",
        "answers",
    ),
    simulated(
        "an answer that was lost is written down",
        "worker/local.py",
        "self._unheard.add(asked_at)\n            raise",
        "raise",
        "answers",
    ),
    simulated(
        "an outcome waits for longer than its lease",
        "worker/local.py",
        "self.flusher.patience_s = OUTAGE_S",
        "pass",
        "outages",
    ),
    simulated(
        "work that was cut off goes back at no cost",
        "worker/execute.py",
        "return after_cut(run.job) if run.is_cut_off else None",
        "return None",
        "outages",
    ),
    simulated(
        "after an outage the reaper waits",
        "engine/housekeeping.py",
        "return sight if self._is_acquainted() else sight._replace(certain=False)",
        "return sight",
        "outages",
    ),
    simulated(
        "each outage has its respite",
        "engine/housekeeping.py",
        "(self._rests_until is None or self._was_refused)",
        "self._rests_until is None",
        "outages",
    ),
]
SIMULATED = {  # what the simulation runs of the worker, and of the housekeeping that decides on its losses
    *(f"worker/{name}.py" for name in ("ahead", "execute", "flush", "heartbeat", "local", "shift", "slots")),
    *(f"engine/{name}.py" for name in ("housekeeping", "silent_workers")),
}
NOT_SIMULATED = {  # its guards whose loss does harm that no world has or sees; each has a test of its own
    "a worker that ends waits no longer than its leases": "nobody looks at how long a stop takes",
    "an odd error of a claim ends no worker": "odd errors are made of settlements alone",
    "what was lost early begins though no slot is free": "no line is full for ever",
    "other times of a worker count": "nobody counts losses that cost nothing",
    "a claim that was heard of again counts": "likewise",
    "a claim that hangs is written down": "an answer that comes too late excuses a loss",
}
