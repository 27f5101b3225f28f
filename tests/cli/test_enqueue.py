from __future__ import annotations

import json
from pathlib import Path

import pytest

from callsheet.kernel.job import HoldReason, Status
from tests.cli.conftest import Shop, Start
from tests.cli.programs import SHOP


def test_a_job_is_made_and_its_id_printed(shop: Shop) -> None:
    result = shop.cli("enqueue", shop.app, "add", '{"a": 1}')
    assert result.exit_code == 0, result.stderr
    assert shop.job(result.stdout.strip()).payload == '{"a":1}'


def test_a_payload_comes_from_text_a_file_standard_input_and_arguments(shop: Shop) -> None:
    Path("payload.json").write_text('{"a": 2}')
    calls = [
        (shop.cli("enqueue", shop.app, "add", "@payload.json"), {"a": 2}),
        (shop.cli("enqueue", shop.app, "add", "-", input='{"a": 3}'), {"a": 3}),
        (shop.cli("enqueue", shop.app, "add", "--arg", "a=4", "--arg", "b=5"), {"a": 4, "b": 5}),
        (shop.cli("enqueue", shop.app, "add", '{"a": 6}', "--arg", "b=7"), {"a": 6, "b": 7}),
        (shop.cli("enqueue", shop.app, "gate", "--arg", "path=a=b"), {"path": "a=b"}),
    ]
    for result, payload in calls:
        assert result.exit_code == 0, result.stderr
        assert json.loads(shop.job(result.stdout.strip()).payload) == payload


def test_arguments_are_read_as_json_where_the_signature_wants_more_than_json_has(shop: Shop) -> None:
    more = "\n\nimport datetime\n\n\n@app.task\nasync def at(day: datetime.date) -> None: ...\n"
    (shop.folder / f"{shop.module}.py").write_text(SHOP + more)
    result = shop.cli("enqueue", shop.app, "at", "--arg", "day=2030-01-31")
    assert result.exit_code == 0, result.stderr
    assert shop.job(result.stdout.strip()).payload == '{"day":"2030-01-31"}'


def test_options_reach_the_job(shop: Shop) -> None:
    first = shop.add()
    words = "--queue=media --priority=7 --delay=10m --unique-key=u1 --ttl=1h --max-attempts=9"
    result = shop.cli("enqueue", shop.app, "add", '{"a": 1}', *words.split(), "--depends-on", first)
    assert result.exit_code == 0, result.stderr
    job = shop.job(result.stdout.strip())
    assert (job.queue, job.priority, job.unique_key, job.ttl_s, job.max_attempts) == ("media", 7, "u1", 3600, 9)
    assert job.blocked_by == 1
    assert job.run_at - job.created_at == 600_000


def test_run_at_needs_a_zone(shop: Shop) -> None:
    result = shop.cli("enqueue", shop.app, "add", '{"a": 1}', "--run-at", "2099-01-01T00:00:00Z")
    job = shop.job(result.stdout.strip())
    assert (job.run_at, job.held) == (4_070_908_800_000, HoldReason.DELAY)
    refusal = shop.cli("enqueue", shop.app, "add", '{"a": 1}', "--run-at", "2099-01-01T00:00:00")
    assert refusal.exit_code == 2
    assert "has no time zone" in refusal.stderr


def test_the_same_idempotency_key_answers_with_the_first_job(shop: Shop) -> None:
    words = ("enqueue", shop.app, "add", '{"a": 1}', "--idempotency-key", "k1")
    first, second = shop.cli(*words), shop.cli(*words)
    assert first.stdout == second.stdout
    assert "an earlier job has this key" in second.stderr
    other = shop.cli("enqueue", shop.app, "add", '{"a": 2}', "--idempotency-key", "k1")
    assert (other.exit_code, other.stdout) == (1, "")


@pytest.mark.parametrize("url", ["sqlite", "redis"], indirect=True)
def test_without_an_app_a_job_is_made_by_name(shop: Shop) -> None:
    result = shop.cli("enqueue", "whatever", '{"x": [1]}', "--database-url", shop.url, "--priority", "3")
    assert result.exit_code == 0, result.stderr
    job = shop.job(result.stdout.strip())
    assert (job.kind, job.payload, job.priority) == ("whatever", '{"x":[1]}', 3)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["{app}", "nothing"], 2, "no task 'nothing'; declared are: add, broken, gate, other"),
        (["{app}", "add", '{"a": "x"}'], 2, "add: a: Input should be a valid integer"),
        (["{app}", "add", "{a: 1}"], 2, "the payload is no JSON"),
        (["{app}", "add", "@missing.json"], 2, "the payload cannot be read: No such file or directory: missing.json"),
        (["{app}", "add", "[1]", "--arg", "a=1"], 2, "--arg adds to a payload that is a JSON object"),
        (["{app}", "add", "--arg", "a"], 2, "--arg a: write name=value"),
        (["{app}", "add", "{}", "{}"], 2, "is too much"),
        (["{app}"], 2, "which task?"),
        (["{app}", "add", '{"a": 1}', "--depends-on", "0" * 8], 1, "no job begins with 00000000"),
        (["add", "{}", "--database-url", "postgresql://u:p/w@h/db"], 2, "the database URL cannot be read"),
    ],
)
def test_what_is_wrong_is_one_line(shop: Shop, words: list[str], code: int, message: str) -> None:
    result = shop.cli("enqueue", *(word.replace("{app}", shop.app) for word in words))
    assert (result.exit_code, result.stdout) == (code, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("callsheet: ")
    assert message in line


def test_wait_prints_the_result_and_fails_with_the_job(shop: Shop, start: Start) -> None:
    worker = start("worker", shop.app)
    good = shop.cli("enqueue", shop.app, "add", '{"a": 1}', "--wait", "--timeout", "30s")
    assert (good.exit_code, good.stdout) == (0, "2\n"), good.stderr
    assert shop.job(good.stderr.split()[0]).status is Status.SUCCEEDED
    bad = shop.cli("enqueue", shop.app, "broken", "--wait", "--timeout", "30s")
    assert (bad.exit_code, bad.stdout) == (1, "")
    assert "dead_letter: RuntimeError: it is broken" in bad.stderr
    worker.signal()
    assert worker.end() == 0


def test_waiting_ends_after_its_timeout_and_the_job_goes_on(shop: Shop) -> None:
    result = shop.cli("enqueue", shop.app, "add", '{"a": 1}', "--wait", "--timeout", "50ms")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has not ended within 50ms; it goes on" in result.stderr
    assert shop.job(result.stderr.split()[0]).status is Status.QUEUED
