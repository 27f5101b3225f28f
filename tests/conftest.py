from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from callsheet.engine import Engine
from tests import stores
from tests.second_try import pytest_runtest_setup, pytest_terminal_summary

__all__ = ["pytest_runtest_setup", "pytest_terminal_summary"]


@pytest.fixture(scope="session", autouse=True)
def _servers_end_with_the_session() -> Iterator[None]:
    yield
    stores.stop_servers()


KNOBS = ("TEST_", "DEEP", "PACE", "SEED", "SEQUENCES", "KINDS", "SCREENSHOTS")
PROGRAMS = ("FFMPEG", "FFPROBE", "TESSERACT")
OURS = tuple(f"CALLSHEET_{name}" for name in (*KNOBS, *PROGRAMS))


def _forget_settings_of_the_machine() -> None:
    """Tests set what they need: this machine's proxies, servers and keys must not change results."""
    for name in list(os.environ):
        is_setting = name.startswith(("CALLSHEET_", "PG", "AWS_", "OTEL_")) and not name.startswith(OURS)
        if is_setting or name.lower() in ("http_proxy", "https_proxy", "all_proxy", "tessdata_prefix"):
            del os.environ[name]


def pytest_configure(config: pytest.Config) -> None:
    _forget_settings_of_the_machine()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background; our programs must hear it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "guarantee(*ids): the numbered guarantees that a test proves")
    if config.pluginmanager.hasplugin("hypothesispytest"):
        _take_time_from_hypothesis()


def _take_time_from_hypothesis() -> None:
    """Disable hypothesis' deadline, because example times depend on the machine's load."""
    import hypothesis  # noqa: PLC0415 - half a second, which a run without its plugin need not spend

    slow = hypothesis.HealthCheck.too_slow
    hypothesis.settings.register_profile("callsheet", deadline=None, suppress_health_check=[slow])
    hypothesis.settings.load_profile("callsheet")


@pytest.fixture(params=stores.THREE)
def url(request: pytest.FixtureRequest) -> str:
    """An empty store of each kind."""
    return stores.ready_url(request.param)


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    engine = Engine.from_url(url)
    await engine.store.migrate()
    async with engine:
        yield engine
