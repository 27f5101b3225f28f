"""Code shared by the tasks of several contracts: error conversion, and a part's progress within the whole job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from callsheet.kernel.errors import Outage, StaleClaim, UnknownStore
from callsheet.llm.errors import LlmError
from callsheet.media.progress import Progress
from callsheet.worker.context import Context
from callsheet.worker.outages import words_of
from callsheet.worker.signals import Fatal, Retry, Snooze


@contextlib.contextmanager
def errors_as_outcomes(ctx: Context, outcome_of: Callable[[Exception, int], Fatal | Retry | Outage]) -> Iterator[None]:
    """Convert any exception in the block to the outcome from `outcome_of`. Drops the cause, which may hold secrets."""
    try:
        yield
    except (Fatal, Retry, Snooze, StaleClaim):
        raise
    except Exception as error:
        if ctx.cancelled:
            raise  # the stop reason decides the job's outcome
        raise outcome_of(error, ctx.attempt) from None


@contextlib.contextmanager
def llm_errors_as_outcomes() -> Iterator[None]:
    """Convert `llm` errors in the block to `Retry` if another attempt may help, else to `Fatal`."""
    try:
        yield
    except Outage:
        raise
    except LlmError as error:
        if error.retryable:
            raise Retry(f"{error.code}: {error}", after=error.after_s) from error
        raise Fatal(str(error), code=error.code) from error
    except UnknownStore as error:
        raise Fatal(f"CALLSHEET_VECTORS_URL: {words_of(error)}", code="vectors_not_configured") from error


def progress_within(ctx: Context, low: float, high: float) -> Callable[[Progress], None]:
    """Return a callback that reports progress of one part as `low` to `high` percent of the job, in whole percents."""
    last = 0.0

    def tell(progress: Progress) -> None:
        nonlocal last
        percent = low + (high - low) * (progress.percent or 0.0) / 100
        if percent - last >= 1.0 and not ctx.cancelled:
            last = percent
            _ = ctx.progress(percent)

    return tell
