"""Guards of the worker: what keeps a run that has lost its claim from doing harm, and a drain from losing work."""

from __future__ import annotations

from tests.mutations.guard import Guard


def worker(name: str, file: str, before: str, after: str, test: str) -> Guard:
    return Guard("kernel", name, f"worker/{file}", before, after, f"tests/worker/{test}")


WORKER = [
    worker(
        "work stops when the lease runs out",
        "heartbeat.py",
        "if run.expires_at < now and run.stop is not Stop.LOST and not run.is_settled:",
        "if False:",
        "test_leases.py -k own_clock",
    ),
    worker(
        "an outcome waits for the store",
        "flush.py",
        "if time.monotonic() > until + self.patience_s:",
        "if True:",
        "test_leases.py -k outcome_waits",
    ),
    worker(
        "one write of a run at a time",
        "flush.py",
        "if run.sending:",
        "if False:",
        "test_writing.py -k one_after_another",
    ),
    worker(
        "two batches at most on their way",
        "flush.py",
        "if len(self._flights) < FLIGHTS:",
        "if True:",
        "test_writing.py -k beside",
    ),
    worker(
        "context variables end with their job",
        "slots.py",
        "if copy_context() != context:",
        "if False:",
        "test_context.py -k context_variables",
    ),
    worker(
        "programs die with their attempt",
        "children.py",
        "os.killpg(pid, signal.SIGKILL)",
        "pass",
        "test_stopping.py -k programs",
    ),
    Guard(
        "sqlite",
        "what only waited in a lost worker is no attempt",
        "engine/housekeeping.py",
        "has_begun=job.job_id not in early",
        "has_begun=True",
        "tests/engine/test_housekeeping.py -k claimed_ahead",
    ),
    Guard(
        "sqlite",
        "what was listed as begun is an attempt",
        "engine/silent_workers.py",
        'if job.job_id not in lists[job.worker_id or ""]',
        "if lists is not None",
        "tests/engine/test_housekeeping.py -k listed_as_begun_count",
    ),
    Guard(
        "sqlite",
        "what was lost early is listed before it begins",
        "worker/shift.py",
        "if (job.lease_losses or job.error) and ahead is not None and needs_listing(job):",
        "if False:",
        "tests/worker/test_stopping.py -k lost_early",
    ),
    Guard(
        "kernel",
        "what was lost early begins though no slot is free",
        "worker/ahead.py",
        "min(max(1, free), len(self.suspects))",
        "min(free, len(self.suspects))",
        "tests/worker/test_stopping.py -k no_slot_is_ever_free",
    ),
]
