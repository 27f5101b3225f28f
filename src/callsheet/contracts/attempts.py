"""What the tasks of several contracts do alike: errors as outcomes, and progress of a part as progress of the whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from callsheet.kernel.errors import Outage, StaleClaim, UnknownStore
from callsheet.llm.errors import LlmError
from callsheet.media.progress import Progress
from callsheet.worker.context import Context
from callsheet.worker.signals import Fatal, Retry, Snooze
from callsheet.worker.words import words_of


@contextlib.contextmanager
def told(ctx: Context, outcome_of: Callable[[Exception, int], Fatal | Retry | Outage]) -> Iterator[None]:
    """Whatever goes wrong as an outcome with a code, by the contract's judgement, without a word of what is secret."""
    try:
        yield
    except (Fatal, Retry, Snooze, StaleClaim):
        raise
    except Exception as error:
        if ctx.cancelled:
            raise  # the reason to stop says what becomes of the job
        raise outcome_of(error, ctx.attempt) from None


@contextlib.contextmanager
def llm_errors_as_outcomes() -> Iterator[None]:
    """Raise `Retry` or `Fatal` in place of an error of `llm`, by whether another attempt may help."""
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


def telling(ctx: Context, low: float, high: float) -> Callable[[Progress], None]:
    """Progress of one part of the work, which is `low` to `high` percent of it; told by whole percents."""
    last = 0.0

    def tell(progress: Progress) -> None:
        nonlocal last
        percent = low + (high - low) * (progress.percent or 0.0) / 100
        if percent - last >= 1.0 and not ctx.cancelled:
            last = percent
            _ = ctx.progress(percent)

    return tell
