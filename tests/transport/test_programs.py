"""The flag and the variable, in real programs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests import stores
from tests.cli.conftest import Shop, Start, _logging_as_it_was, shop, start
from tests.cli.programs import eventually
from tests.server_process import free_port
from tests.servers import RedisServer
from tests.transport.conftest import Stream

__all__ = ["_logging_as_it_was", "shop", "start"]  # fixtures of the command line


@pytest.fixture
def url() -> str:
    return stores.fresh_url("sqlite")


def test_a_worker_and_a_producer_meet_over_the_stream(
    shop: Shop, start: Start, redis_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHEET_REDIS_URL", redis_url)
    assert shop.cli("enqueue", shop.app, "add", '{"a": 1}').exit_code == 0
    ((_, fields),) = stream.entries()
    worker = start("worker", shop.app, "--redis-url", redis_url)
    worker.hear("transport redis://")
    eventually(lambda: shop.ended(fields["job_id"]))
    eventually(lambda: not stream.entries())
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0


@pytest.mark.parametrize("command", ["serve", "up"])
def test_a_server_takes_the_flag(shop: Shop, start: Start, redis_url: str, stream: Stream, command: str) -> None:
    job_id = shop.add(queue="elsewhere")  # enqueued by a program without a transport: the relay publishes it
    server = start(command, "--port", _free_port(), "--redis-url", redis_url)
    server.hear("transport redis://")
    eventually(lambda: stream.stays("elsewhere") == [f"{job_id}.0"])
    server.signal(signal.SIGTERM)
    assert server.end() == 0


def test_a_wrong_url_ends_a_program_with_one_line(shop: Shop, start: Start) -> None:
    worker = start("worker", shop.app, "--redis-url", "redis://:s3cret@h:port/0")
    assert worker.end() == 2
    assert "the URL of the transport cannot be read" in worker.said[-1]
    assert not any("s3cret" in line or "Traceback" in line for line in worker.said)


def test_the_doctor_tells_of_the_transport(shop: Shop, redis_url: str) -> None:
    output = shop.cli("doctor", "--redis-url", redis_url)
    assert output.exit_code == 0
    assert f"✓ transport: {redis_url}, Redis " in output.stdout
    assert "transport" not in shop.cli("doctor").stdout


def test_the_doctor_tells_what_is_wrong_with_the_transport(shop: Shop) -> None:
    away = shop.cli("doctor", "--redis-url", "redis://:s3cret@127.0.0.1:1/0")
    assert away.exit_code == 0  # work goes on without it
    assert "! transport: redis://:***@127.0.0.1:1/0: Redis cannot serve now" in away.stdout
    wrong = shop.cli("doctor", "--redis-url", "http://h")
    assert wrong.exit_code == 1
    assert "✗ transport: http://h: the URL of the transport must begin with redis://" in wrong.stdout
    none = Shop(Path(), "", "").cli(
        "doctor", "--database-url", stores.fresh_url("redis"), "--redis-url", "redis://127.0.0.1:1/0"
    )
    assert "! transport: the store is Redis itself" in none.stdout


def test_work_goes_on_when_redis_was_never_there(shop: Shop, start: Start) -> None:
    with RedisServer.start(settings={"appendonly": "no"}) as server:
        server.kill9()
        worker = start("worker", shop.app, CALLSHEET_REDIS_URL=server.url())
        worker.hear("the transport is away")
        job_id = shop.add()
        eventually(lambda: shop.ended(job_id))
        server.start_again()
        worker.hear("the transport is back")


def _free_port() -> str:
    return str(free_port())
