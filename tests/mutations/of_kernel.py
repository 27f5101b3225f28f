"""Guards in the kernel."""

from __future__ import annotations

from tests.mutations.guard import Guard


def kernel(name: str, file: str, before: str, after: str, test: str, *, times: int = 1) -> Guard:
    return Guard("kernel", name, f"kernel/{file}", before, after, f"tests/kernel/{test}", times)


KERNEL = [
    kernel(
        "legal moves",
        "lifecycle.py",
        "if not _legal(self, (job.status, job.stage, has_started), target):",
        "if False:",
        "test_moves.py",
    ),
    kernel("the status of a command", "commands.py", "if job.status is not status:", "if False:", "test_moves.py"),
    kernel(
        "start comes first",
        "commands.py",
        "if has_started is not None and (job.attempt_started_at is not None) is not has_started:",
        "if False:",
        "test_moves.py",
    ),
    kernel(
        "the budget of attempts",
        "commands.py",
        "if job.attempt_count >= job.max_attempts:",
        "if False:",
        "test_moves.py",
    ),
    kernel(
        "the last lost lease",
        "commands.py",
        "spent = losses >= most or",
        "spent =",
        "test_moves.py",
    ),
    kernel(
        "a requeue needs its budget",
        "commands.py",
        "if is_spent and lifecycle.requeue_needs_budget:",
        "if False:",
        "test_moves.py",
    ),
    kernel(
        "progress is clamped", "apply.py", "min(100.0, max(0.0, float(percent)))", "float(percent)", "test_rules.py"
    ),
    kernel(
        "circles of dependencies",
        "new_jobs.py",
        "    if not any(new.depends_on for new in batch):",
        "    if True:",
        "test_rules.py",
    ),
    kernel("payload limit", "wire.py", "if size > limit_bytes:", "if False:", "test_rules.py"),
    kernel("no NaN", "wire.py", "allow_nan=False", "allow_nan=True", "test_rules.py"),
    kernel("the larger bucket", "retry.py", "if error.code in self.throttled:", "if False:", "test_retry.py"),
    kernel("refresh budget", "retry.py", "if refreshes < self.max_refreshes else", "if True else", "test_retry.py"),
    kernel(
        "cancel beats retry",
        "commands.py",
        "    if job.cancel_requested_at is not None:\n        return cancel(job",
        "    if False:\n        return cancel(job",
        "test_retry.py",
        times=2,
    ),
]
