"""`callsheet worker --url` and `callsheet testkit`, as programs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from callsheet import Callsheet
from callsheet.cli import cli
from callsheet.cli.testkit.proxy import Asked, Fate, FaultProxy
from callsheet.contracts.redis_gateway import routes as gateway
from callsheet.kernel.job import Status
from tests import stores
from tests.cli.programs import SHOP, Program
from tests.http.live import ADMIN, Live, serving
from tests.server_process import free_port
from tests.store_driver import new_job

from .conftest import ROUTERS, ended, running, until

SPY = """

@app.task
async def spy() -> list[str]:
    return [name for name, value in os.environ.items() if value == "@token@"]
"""


@pytest.fixture
def store_url() -> str:
    return stores.fresh_url("sqlite")


@pytest.fixture
async def live(store_url: str) -> AsyncIterator[Live]:
    async with serving(store_url, routers=[*ROUTERS, gateway.router], housekeeping=True) as live:
        yield live


@pytest.fixture
def shop(tmp_path: Path, token: str) -> Path:
    (tmp_path / "shop.py").write_text(SHOP + SPY.replace("@token@", token))
    return tmp_path


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    processes: list[Program] = []
    yield processes
    for program in processes:
        program.clear_away()


async def add(live: Live, task: str, **arguments: object) -> str:
    new = new_job(task, payload=json.dumps(arguments))
    await live.engine.enqueue([new])
    return new.job_id


def begin(programs: list[Program], folder: Path, *words: str, **variables: str) -> Program:
    programs.append(Program(folder, "worker", "shop:app", *words, variables=variables))
    return programs[-1]


async def test_a_remote_worker_is_a_flag_away(live: Live, shop: Path, token: str, programs: list[Program]) -> None:
    job_id, spied = await add(live, "add", a=2, b=3), await add(live, "spy")
    worker = begin(programs, shop, "--url", live.url, "--burst", CALLSHEET_WORKER_TOKEN=token)
    assert await asyncio.to_thread(worker.end) == 0, worker.said
    assert (await live.engine.get(job_id)).result == "5"
    assert (await live.engine.get(spied)).result == "[]"  # tasks do not see the worker's token
    assert token not in "".join(worker.said)
    assert any(f"jobs from {live.url}" in line for line in worker.said)


async def test_the_environment_alone_is_enough_and_its_url_alone_is_not(
    live: Live, shop: Path, token: str, programs: list[Program]
) -> None:
    job_id = await add(live, "add", a=1)
    here = f"sqlite:///{shop}/local.db"
    await Callsheet(here).migrate()
    local = begin(programs, shop, "--burst", CALLSHEET_URL=live.url, CALLSHEET_DATABASE_URL=here)
    assert await asyncio.to_thread(local.end) == 0, local.said
    assert (await live.engine.get(job_id)).status is Status.QUEUED
    remote = begin(programs, shop, "--burst", CALLSHEET_URL=live.url, CALLSHEET_TOKEN=token)
    assert await asyncio.to_thread(remote.end) == 0, remote.said
    assert (await live.engine.get(job_id)).status is Status.SUCCEEDED


async def test_a_token_that_is_not_taken_ends_it_with_2_also_with_processes(
    live: Live, shop: Path, programs: list[Program]
) -> None:
    many = begin(programs, shop, "--url", live.url, "--processes", "2", CALLSHEET_TOKEN="cs_live_wrong")
    one = begin(programs, shop, "--url", live.url, CALLSHEET_TOKEN="cs_live_wrong")
    assert [await asyncio.to_thread(program.end) for program in (many, one)] == [2, 2]
    assert "does not want this worker" in one.said[-1]
    assert "cs_live_wrong" not in "".join(one.said + many.said)


async def test_processes_of_a_drained_worker_are_not_started_again(
    live: Live, shop: Path, token: str, programs: list[Program]
) -> None:
    def drain(request: Asked) -> Fate:
        return Fate(change=lambda answer: {**answer, "drain": True})

    async with FaultProxy.before(live.url, drain) as proxy:
        words = ("--url", proxy.url, "--processes", "2", "--claim-wait", "1s")
        worker = begin(programs, shop, *words, CALLSHEET_TOKEN=token)
        assert await asyncio.to_thread(worker.end) == 0, worker.said
    assert not any("starts again" in line for line in worker.said)


async def test_a_supervised_worker_drains(live: Live, shop: Path, token: str, programs: list[Program]) -> None:
    gate = shop / "gate"
    job_id = await add(live, "gate", path=str(gate))
    worker = begin(programs, shop, "--url", live.url, "--processes", "1", "--reload", CALLSHEET_TOKEN=token)
    await running(live, job_id)
    await until(live, job_id, lambda _: gate.with_name("gate.pid").exists())
    worker.signal(signal.SIGTERM)
    await asyncio.to_thread(worker.hear, "draining")
    gate.touch()
    assert (await ended(live, job_id)).result == '"through"'
    assert await asyncio.to_thread(worker.end) == 0, worker.said


async def test_health_tells_whether_a_remote_worker_can_claim(
    live: Live, shop: Path, token: str, programs: list[Program]
) -> None:
    port = free_port()
    async with FaultProxy.before(live.url) as proxy, httpx2.AsyncClient(timeout=60) as client:
        words = ("--url", proxy.url, "--claim-wait", "500ms", "--health", f"127.0.0.1:{port}")
        begin(programs, shop, *words, CALLSHEET_TOKEN=token)

        async def becomes(status: int) -> None:
            async with asyncio.timeout(60):
                while True:
                    try:
                        if (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == status:
                            return
                    except httpx2.TransportError:
                        pass
                    await asyncio.sleep(0.05)

        await becomes(200)
        proxy.fate = lambda request: Fate(hole=request.verb == "claim")
        await becomes(503)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--url", "https://x", "--database-url", "sqlite://"], "exclude one another"),
        (["--url", "https://x"], "needs one token"),
        (["--url", "nonsense", "--token", "t"], "begins with http"),
        (["--url", "https://x", "--token", "t", "--labels", "a b"], "no label"),
        (["--url", "https://x", "--token-file", "nowhere"], "cannot be read"),
    ],
)
def test_wrong_flags_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "little_shop.py").write_text(SHOP)
    result = CliRunner().invoke(cli, ["worker", "little_shop:app", *words])
    assert result.exit_code == 2
    assert message in result.stderr


async def testkit(*words: str, **variables: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "callsheet.cli", "testkit", *words,
        env={**os.environ, "PYTHONPATH": "src:.", **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def test_our_own_control_plane_holds_the_test_kit(live: Live) -> None:
    code, out = await testkit("server", "--url", live.url, "--json", CALLSHEET_TOKEN=ADMIN)
    result = json.loads(out)
    assert {one["claim"]: one["told"] for one in result if one["verdict"] == "broken"} == {}
    assert code == 0
    assert sum(one["verdict"] == "held" for one in result) >= 22
    counts = await live.engine.store.counts()
    left = {q: c for q, c in counts.items() if q.startswith("testkit") and c.get(Status.QUEUED, 0)}
    assert not left


async def test_a_control_plane_that_forgets_tokens_is_found_out(live: Live) -> None:
    """A worker that accepts any end as final and ignores protocol versions."""

    def change(request: Asked) -> Fate:
        return Fate(
            change=lambda answer: {k: v for k, v in answer.items() if k not in ("protocol", "message_id", "dlq")}
        )

    async with FaultProxy.before(live.url, change) as proxy:
        code, out = await testkit("server", "--url", proxy.url, "--only", "C", "--json", CALLSHEET_TOKEN=ADMIN)
    message_of = {one["claim"]: one["told"] for one in json.loads(out) if one["verdict"] == "broken"}
    assert code == 1
    assert any("message_id" in text for text in message_of.values())
    assert {one["verdict"] for one in json.loads(out) if one["extension"]} == {"skipped"}


async def test_another_servers_jobs_are_made_by_a_command(live: Live, store_url: str, tmp_path: Path) -> None:
    script = tmp_path / "enqueue.py"
    script.write_text(
        "import json, sys\nfrom callsheet import Callsheet\nfrom callsheet.engine.ids import new_id\n"
        "from callsheet.kernel.job import NewJob\nasked = json.load(sys.stdin)\napp = Callsheet(sys.argv[1])\n"
        "new = NewJob(new_id(), asked['task'], json.dumps(asked['payload']), asked['stream'])\n"
        "app.sync(app.enqueue([new]))\n"
    )
    command = f"{sys.executable} {script} {store_url}"
    code, out = await testkit(
        "server", "--url", live.url, "--only", "extends", "--enqueue", command, CALLSHEET_TOKEN=ADMIN
    )
    assert (code, "1 held" in out) == (0, True), out


async def test_a_worker_that_cannot_be_started_is_told() -> None:
    code, _ = await testkit("worker", "--", "/no/such/program")
    assert code == 2
