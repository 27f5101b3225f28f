"""The lane of an older Redis: where this machine has one, the whole conformance suite of the Redis store runs on it.

Tests run on Valkey otherwise. `CALLSHEET_TEST_REDIS_SERVER` names a redis-server, else that of the PATH is taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import binaries
from tests.servers import RedisServer

ROOT = Path(__file__).parents[2]
OLDEST = (6, 2, 0)
NONE = "no redis-server here: CALLSHEET_TEST_REDIS_SERVER names one; only Valkey was tried"


@pytest.mark.timeout(1200)
@pytest.mark.skipif(binaries.older_redis() is None, reason=NONE)
def test_the_conformance_suite_holds_on_an_older_redis() -> None:
    program = binaries.redis_program("redis")
    assert binaries.redis_version(program) >= OLDEST, f"{program} is older than what is promised"
    with RedisServer.start(kind="redis", settings={"appendfsync": "everysec"}) as server:
        environment = {**os.environ, "CALLSHEET_TEST_REDIS_URL": server.url()}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += ["tests/conformance", "-k", "redis"]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    assert " passed" in run.stdout


def test_a_named_server_wins_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\necho 'Redis server v=7.0.15 sha=0'\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    monkeypatch.delenv("CALLSHEET_TEST_REDIS_SERVER", raising=False)
    assert binaries.older_redis.__wrapped__() == program
    assert binaries.redis_version(program) == (7, 0, 15)
    monkeypatch.setenv("CALLSHEET_TEST_REDIS_SERVER", "/elsewhere/redis-server")
    assert binaries.older_redis.__wrapped__() == Path("/elsewhere/redis-server")
