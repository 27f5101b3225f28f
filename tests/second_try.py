"""`make test` repeats a failed test once and reports it: noise neither stops a run nor is hidden.

The trying is pytest-rerunfailures'; its options stand in the Makefile. Six such tests in one run are no noise: the
sixth failure is final. This plugin tells of them, and gives the second try its own time limit.
"""

from __future__ import annotations

import pytest
import pytest_timeout  # type: ignore[import-untyped]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the clock anew: pytest-timeout's runs over both tries, and is spent when the first one hung."""
    if getattr(item, "execution_count", 1) > 1:
        settings = pytest_timeout._get_item_settings(item)
        if settings.timeout and not settings.func_only:
            item.ihook.pytest_timeout_cancel_timer(item=item)
            item.ihook.pytest_timeout_set_timer(item=item, settings=settings)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tests that passed only at the second try, with the first failure's reason."""
    stats = terminalreporter.stats
    bad = {report.nodeid for word in ("failed", "error") for report in stats.get(word, [])}
    saved = [report for report in stats.get("rerun", []) if report.nodeid not in bad]
    if saved:
        terminalreporter.write_sep("=", "failed once, then passed: look at these", yellow=True)
    for report in saved:
        terminalreporter.write_line(f"{report.nodeid} ({report.when}): {_reason(report)}")


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return next(iter(text.splitlines()), "")
