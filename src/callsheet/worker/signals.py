"""Exceptions that a task raises to choose its attempt's outcome."""

from __future__ import annotations

from callsheet.kernel.durations import Duration, milliseconds


class Retry(Exception):
    """Try again later; it counts as an attempt. Without `after` the job's retry policy says when, by the `code`."""

    def __init__(
        self, message: str = "asked for another attempt", *, after: Duration | None = None, code: str = "retry"
    ) -> None:
        super().__init__(message)
        self.code = code
        self.after_ms = None if after is None else milliseconds(after)


class Fatal(Exception):
    """Give up for good: another attempt would change nothing."""

    def __init__(self, message: str, *, code: str = "fatal") -> None:
        super().__init__(message)
        self.code = code


class Snooze(Exception):
    """Delay the job: return it to the queue for a given time, without counting an attempt."""

    def __init__(self, duration: Duration) -> None:
        super().__init__(f"snoozed for {duration}")
        self.delay_ms = milliseconds(duration)
