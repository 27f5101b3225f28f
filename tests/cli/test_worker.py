from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import urllib.request
import uuid
from pathlib import Path

import psutil
import pytest

from callsheet.app import Callsheet
from callsheet.cli import worker_process
from callsheet.kernel.job import Status
from callsheet.net.guard import Rules, address_rules
from tests.cli.conftest import Shop, Start
from tests.cli.programs import SHOP, Program, eventually
from tests.faults.conftest import run_out


def gated(shop: Shop) -> tuple[str, Path]:
    """A job that runs until its gate is opened, and the gate."""
    gate = shop.folder / "gate"
    return shop.add("gate", {"path": str(gate)}), gate


def burst(shop: Shop, start: Start, *words: str, **variables: str) -> Program:
    worker = start("worker", shop.app, "--burst", *words, **variables)
    assert worker.end() == 0, worker.said
    return worker


@pytest.mark.parametrize("url", ["postgres", "redis"], indirect=True)
def test_a_burst_does_what_there_is_and_ends(shop: Shop, start: Start) -> None:
    jobs = [shop.add(payload={"a": n}) for n in range(3)]
    burst(shop, start)
    assert [shop.job(job_id).result for job_id in jobs] == ["1", "2", "3"]


def test_variables_stand_for_flags_and_a_flag_wins(shop: Shop, start: Start) -> None:
    here, there = shop.add(), shop.add("other", {}, queue="other")
    worker = start("worker", shop.module, CALLSHEET_BURST="1", CALLSHEET_QUEUES="other,none")
    assert worker.end() == 0, worker.said
    assert (shop.job(here).status, shop.job(there).status) == (Status.QUEUED, Status.SUCCEEDED)
    burst(shop, start, "--queues", "default", CALLSHEET_QUEUES="other")
    assert shop.job(here).status is Status.SUCCEEDED


def test_a_worker_is_called_what_contract_000_calls_it(shop: Shop, start: Start) -> None:
    for variables, name in (
        ({"POD_NAME": "pod-7", "HOSTNAME": "host-1"}, "pod-7"),
        ({"POD_NAME": "", "HOSTNAME": "host-1"}, "host-1"),
    ):
        job_id = shop.add()
        burst(shop, start, **variables)
        assert [a.worker_id for a in shop.ask(lambda engine: engine.store.attempts(job_id))] == [name]  # noqa: B023
    boots = set()
    for _ in range(2):
        job_id = shop.add()
        burst(shop, start, POD_NAME="", HOSTNAME="")
        boots.add(shop.ask(lambda engine: engine.store.attempts(job_id))[0].worker_id)  # noqa: B023
    assert len({uuid.UUID(boot) for boot in boots}) == 2


def test_each_process_of_a_pod_has_a_name_of_its_own(shop: Shop, start: Start) -> None:
    worker = start("worker", shop.app, "--processes", "2", POD_NAME="pod-7")
    worker.hear("serves", 2)
    queues_served = {line.partition("worker ")[2].partition(" serves")[0] for line in worker.said if " serves " in line}
    assert queues_served == {"pod-7", "pod-7-2"}


def test_the_largest_source_is_a_setting_of_the_worker(shop: Shop, start: Start) -> None:
    objects = shop.folder / "objects"
    (objects / "uploads" / "~").mkdir(parents=True)  # where operators' own are
    (objects / "uploads" / "~" / "large.wav").write_bytes(bytes(1_000_001))
    output = {"key": "a.mp3", "format": "mp3"}
    payload = {"source": "object:uploads/~/large.wav", "output": "object:outputs/~", "outputs": [output]}
    job_id = shop.add("transcode", payload, queue="transcode", contract="euterpe")
    worker = start("worker", "--burst", CALLSHEET_MAX_SOURCE="1", CALLSHEET_OBJECTS_URL=f"file://{objects}")
    assert worker.end() == 0, worker.said
    job = shop.job(job_id)
    assert (job.status, json.loads(job.error or "{}")["code"]) == (Status.FAILED, "source_too_large")


def test_a_worker_reaches_what_its_flags_open_as_a_server_does(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    options_seen: list[Rules] = []

    def declared(app: Callsheet, rules: Rules, *, storage: Rules, **_: object) -> Callsheet:
        options_seen.extend((rules, storage))
        return app

    monkeypatch.setattr(worker_process, "add_builtin", declared)
    monkeypatch.setenv("CALLSHEET_WEBHOOK_NETWORKS", "10.1.0.0/16")
    shop.cli("worker", "--burst", "--queues", "none", "--webhook-http", "--webhook-ports", "9443")
    assert (
        options_seen == [address_rules(["10.1.0.0/16"], ["9443"], http=True)] * 2
    )  # storages have no rules of their own


def test_a_workers_storages_have_settings_of_their_own(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    options_seen: list[Rules] = []

    def declared(app: Callsheet, rules: Rules, *, storage: Rules, **_: object) -> Callsheet:
        options_seen.extend((rules, storage))
        return app

    monkeypatch.setattr(worker_process, "add_builtin", declared)
    monkeypatch.setenv("CALLSHEET_STORAGE_NETWORKS", "10.2.0.0/16")
    monkeypatch.setenv("CALLSHEET_WEBHOOK_NETWORKS", "10.1.0.0/16")
    shop.cli("worker", "--burst", "--queues", "none", "--storage-http", "--storage-ports", "9000")
    assert options_seen == [
        address_rules(["10.1.0.0/16"], None, http=False),
        address_rules(["10.2.0.0/16"], ["9000"], http=True),
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_running_jobs_end(shop: Shop, start: Start, number: signal.Signals) -> None:
    job_id, gate = gated(shop)
    worker = start("worker", shop.app)
    eventually(lambda: shop.running(job_id))
    worker.signal(number)
    worker.hear("draining")
    late = shop.add()
    gate.touch()
    assert worker.end() == 0, worker.said
    assert shop.job(job_id).result == '"through"'
    assert shop.job(late).status is Status.QUEUED


def test_the_second_signal_hands_running_jobs_back(shop: Shop, start: Start) -> None:
    job_id, _ = gated(shop)
    worker = start("worker", shop.app, "--drain", "10m")
    eventually(lambda: shop.running(job_id))
    worker.signal()
    worker.hear("draining")
    worker.signal()
    assert worker.end() == 0, worker.said
    job = shop.job(job_id)
    assert (job.status, job.attempt_count) == (Status.QUEUED, 0)


def test_a_worker_process_that_is_killed_is_started_again_and_all_jobs_end(shop: Shop, start: Start) -> None:
    job_id, gate = gated(shop)
    worker = start("worker", shop.app, "--processes", "2", "--lease", "10m")
    worker.hear("serves", 2)
    eventually(Path(f"{gate}.pid").exists)
    os.kill(int(Path(f"{gate}.pid").read_text()), signal.SIGKILL)
    worker.hear("was ended by SIGKILL; it starts again")
    worker.hear("serves", 3)
    held = shop.job(job_id)
    shop.ask(lambda engine: run_out(engine, held))
    gate.touch()
    eventually(lambda: shop.ended(job_id))
    worker.signal()
    assert worker.end() == 0, worker.said
    job = shop.job(job_id)
    assert (job.status, job.lease_losses) == (Status.SUCCEEDED, 1)


def test_a_second_signal_is_passed_on_by_the_supervisor(shop: Shop, start: Start) -> None:
    job_id, _ = gated(shop)
    worker = start("worker", shop.app, "--processes", "2", "--drain", "10m")
    eventually(lambda: shop.running(job_id))
    worker.hear("serves", 2)
    worker.signal(signal.SIGINT)
    worker.hear("draining")
    worker.signal(signal.SIGINT)
    assert worker.end() == 0, worker.said
    assert shop.job(job_id).status is Status.QUEUED


def test_workers_end_when_their_supervisor_is_killed(shop: Shop, start: Start) -> None:
    worker = start("worker", shop.app, "--processes", "2")
    worker.hear("serves", 2)
    children = worker.children()
    assert len(children) == 2
    worker.process.kill()
    eventually(lambda: all(_has_ended(child) for child in children))


def _has_ended(process: psutil.Process) -> bool:
    """Return whether a process ended, counting a zombie that no init process reaps."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_burst_of_several_processes_ends(shop: Shop, start: Start) -> None:
    jobs = [shop.add() for _ in range(5)]
    burst(shop, start, "--processes", "2")
    assert shop.ended(*jobs)


def test_an_app_that_cannot_be_imported_is_told_once_also_by_several_processes(shop: Shop, start: Start) -> None:
    worker = start("worker", "nowhere:app", "--processes", "2")
    assert worker.end() == 2
    eventually(lambda: any("callsheet:" in line for line in worker.said))
    assert [line for line in worker.said if "callsheet:" in line] == [
        f"callsheet: no module 'nowhere' in {shop.folder} or on the Python path"
    ]


def test_reload_starts_the_worker_again_when_a_file_changes(shop: Shop, start: Start) -> None:
    source = shop.folder / f"{shop.module}.py"
    worker = start("worker", shop.app, "--reload")
    worker.hear("serves")
    source.write_text("this is no Python")
    worker.hear("starts again when a file changes")
    source.write_text(SHOP.replace("return a + b", "return a + b + 100"))
    worker.hear("serves", 2)
    job_id = shop.add()
    eventually(lambda: shop.ended(job_id))
    worker.signal()
    assert worker.end() == 0, worker.said
    assert shop.job(job_id).result == "102"
    assert any("SyntaxError" in line for line in worker.said)


def test_json_logs_are_one_object_a_line_with_the_jobs_fields(shop: Shop, start: Start) -> None:
    job_id = shop.add()
    shop.add("broken", {})
    lines = [json.loads(line) for line in burst(shop, start, "--log-format", "json").said]
    assert all({"ts", "level", "logger", "message"} <= line.keys() for line in lines)
    begun_jobs, jobs = [line for line in lines if line.get("job_id") == job_id]
    assert (begun_jobs["task"], begun_jobs["queue"], begun_jobs["attempt"]) == ("add", "default", 1)
    assert begun_jobs["waited_ms"] >= 0
    assert jobs["took_ms"] >= 0


SPEAKING = """
import logging

from callsheet import Callsheet, Context

app = Callsheet()
log = logging.getLogger("shop.own")


def spoken(ctx: Context) -> None:
    log.warning("by a logger of its own")
    ctx.log("by the context", level="warning")


@app.task
async def in_loop(ctx: Context) -> None:
    spoken(ctx)


@app.task(executor="thread")
def in_thread(ctx: Context) -> None:
    spoken(ctx)


@app.task(executor="process")
def in_process(ctx: Context) -> None:
    ctx.log("by the context", level="warning")


@app.task
async def number(n: int) -> None: ...
"""


@pytest.mark.parametrize("name", ["in_loop", "in_thread", "in_process"])
@pytest.mark.parametrize("form", ["json", "human"])
def test_every_line_about_a_job_has_its_correlation_id(shop: Shop, start: Start, form: str, name: str) -> None:
    (shop.folder / f"{shop.module}.py").write_text(SPEAKING)
    first, other = f"trace-{uuid.uuid4().hex}", f"trace-{uuid.uuid4().hex}"
    job_id = shop.add(name, {}, correlation_id=first)
    shop.add("number", {"n": "none"}, correlation_id=other)
    lines = burst(shop, start, "--log-format", form).said
    lines_wanted = ["started", "by the context", "succeeded"] + ["by a logger of its own"] * (name != "in_process")
    for words in lines_wanted:
        (line,) = [line for line in lines if words in line and first in line]
        if form == "json":
            record = json.loads(line)
            assert (record["job_id"], record["correlation_id"]) == (job_id, first), words
    assert [line for line in lines if other in line and "was refused for its payload" in line], lines
    assert all(line.count(first) <= 1 or form == "json" for line in lines), "once is enough for people"
    about = [line for line in lines if job_id in line]
    assert about == [line for line in about if first in line], "no line about the job is without it"


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_workers_log_has_no_password(shop: Shop, start: Start) -> None:
    url = shop.url.replace("//postgres@", "//postgres:s3cret@")
    output = burst(shop, start, "--database-url", url, "--log-level", "debug", CALLSHEET_DATABASE_URL="").said
    assert any("postgres:***@" in line for line in output)
    assert not any("s3cret" in line for line in output)


def test_a_store_that_cannot_be_reached_is_one_line(shop: Shop, start: Start) -> None:
    worker = start("worker", shop.app, "--database-url", "postgresql://u:s3cret@127.0.0.1:1/db", "--wait", "0")
    assert worker.end() == 1
    (line,) = worker.said
    assert line.startswith("callsheet: PostgreSQL cannot be reached")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lease", "30x"], "'30x' is no duration; write seconds (10, 0.5) or units"),
        (["--lease", "10ms"], "a lease must last at least 1 s"),
        (["--concurrency", "0"], "0 is not in the range x>=1"),
        (["--health", "8080"], "'8080' is no address; write 127.0.0.1:8080 or :8080"),
        (["--queues", ","], "',' names nothing"),
        (["--log-format", "xml"], "'xml' is not one of 'human', 'json'"),
        (["--nothing"], "No such option"),
    ],
)
def test_a_wrong_flag_is_told_and_ends_with_2(shop: Shop, words: list[str], message: str) -> None:
    result = shop.cli("worker", shop.app, *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_variable_does_not_replace_a_store_that_the_app_names(shop: Shop, start: Start) -> None:
    own = f"sqlite:///{shop.folder}/own.db"
    source = shop.folder / f"{shop.module}.py"
    source.write_text(SHOP.replace("Callsheet()", f"Callsheet({own!r})"))
    worker = burst(shop, start)
    assert any(own in line for line in worker.said)


def test_health_is_served_where_it_was_asked_for(shop: Shop, start: Start) -> None:
    port = _free_ports(2)
    worker = start("worker", shop.app, "--processes", "2", "--health", f"127.0.0.1:{port}")
    eventually(lambda: all(_answers(f"http://127.0.0.1:{each}/readyz") for each in (port, port + 1)))
    taken = start("worker", shop.app, "--health", f"127.0.0.1:{port}")
    assert taken.end() == 1
    assert taken.said[-1] == f"callsheet: cannot listen at 127.0.0.1:{port}: Address already in use"
    worker.signal()
    assert worker.end() == 0, worker.said


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_ports(count: int) -> int:
    """Return the first of several free, neighbouring ports."""
    while True:
        first = random.randrange(15_000, 32_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
