from __future__ import annotations

import json
from typing import Any

import pytest

from callsheet.engine import Engine
from callsheet.http.problems import Problem
from callsheet.http.worker_registry import Token, WorkerRegistry
from tests.cli.conftest import Shop


def enrolled(shop: Shop, token: str) -> Token:
    async def enroll(engine: Engine) -> Token:
        workers = WorkerRegistry(engine.store)
        result = await workers.enroll(token, "gpu1", labels=["[bold]"], version="1.0", protocol=2)
        await workers.record_seen(result.worker.worker_id, ["[bold]"], "1.1", 4)
        return result

    return shop.ask(enroll)


def listed(shop: Shop) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = json.loads(shop.cli("workers", "list", "--json").stdout)
    return results


@pytest.mark.parametrize("url", ["sqlite", "postgres", "redis"], indirect=True)
def test_a_worker_is_enrolled_listed_drained_and_revoked(shop: Shop) -> None:
    assert shop.cli("workers", "list").stdout.startswith("no workers yet")
    output = shop.cli("workers", "enroll", "--queues", "media,default", "--tenants", "acme", "--token-life", "10m")
    assert "it is not shown again" in output.stderr
    token = enrolled(shop, output.stdout.strip())
    worker_id = token.worker.worker_id
    assert (token.worker.queues, token.worker.tenants, token.rotate_after_s) == (("media", "default"), ("acme",), 450)
    (line,) = shop.cli("workers", "list").stdout.splitlines()[1:]
    for words in (worker_id, "active", "media, default", "acme", "[bold]", "4", "0s ago", "1.1"):
        assert words in line
    assert "is drained" in shop.cli("workers", "drain", worker_id).stdout
    assert listed(shop)[0]["state"] == "draining"
    assert "takes jobs again" in shop.cli("workers", "drain", worker_id, "--undo").stdout
    assert listed(shop)[0]["state"] == "active"
    assert shop.cli("workers", "revoke", worker_id).stdout == f"worker {worker_id} is revoked\n"
    assert listed(shop)[0]["state"] == "revoked"
    with pytest.raises(Problem, match="was revoked"):
        shop.ask(lambda engine: WorkerRegistry(engine.store).principal(token.text))


def test_an_enrolment_is_for_all_queues_and_one_worker_unless_it_says(shop: Shop) -> None:
    record = json.loads(shop.cli("workers", "enroll", "--json").stdout)
    assert (record["queues"], record["tenants"], record["uses_left"]) == (None, None, 1)
    assert record["expires_at"] - record["created_at"] == 3_600_000
    enrolled(shop, record["enrolment_token"])
    with pytest.raises(Problem, match="used up"):
        enrolled(shop, record["enrolment_token"])


def test_an_enrolment_is_taken_back(shop: Shop) -> None:
    record = json.loads(shop.cli("workers", "enroll", "--json", "--uses", "3").stdout)
    id_ = record["enrolment_id"]
    assert shop.cli("workers", "withdraw", id_).stdout == f"enrolment {id_} is taken back\n"
    with pytest.raises(Problem):
        enrolled(shop, record["enrolment_token"])
    again = shop.cli("workers", "withdraw", id_)
    assert (again.exit_code, again.stderr.startswith(f"callsheet: no enrolment {id_}")) == (1, True)


@pytest.mark.parametrize("url", ["sqlite", "postgres", "redis"], indirect=True)
def test_enrolments_that_can_be_used_are_listed(shop: Shop) -> None:
    assert shop.cli("workers", "enrolments").stdout.startswith("no enrolment token can be used")
    one = json.loads(shop.cli("workers", "enroll", "--json", "--queues", "media", "--tenants", "[b]acme").stdout)
    two = json.loads(shop.cli("workers", "enroll", "--json", "--uses", "3", "--expires", "2h").stdout)
    first, second = shop.cli("workers", "enrolments").stdout.splitlines()[1:]
    for line, words in (
        (first, (one["enrolment_id"], "media", "[b]acme", " 1 ", "0s ago")),
        (second, (two["enrolment_id"], "all", " 3 ", "0s ago")),
    ):
        for word in words:
            assert word in line
    output = json.loads(shop.cli("workers", "enrolments", "--json").stdout)
    assert [right["enrolment_id"] for right in output] == [one["enrolment_id"], two["enrolment_id"]]
    assert one["enrolment_token"] not in json.dumps(output)
    shop.cli("workers", "withdraw", one["enrolment_id"])
    enrolled(shop, two["enrolment_token"])
    (left,) = json.loads(shop.cli("workers", "enrolments", "--json").stdout)
    assert (left["enrolment_id"], left["uses_left"], left["expires_at"]) == (two["enrolment_id"], 2, two["expires_at"])


@pytest.mark.parametrize("words", [["revoke"], ["drain"]])
def test_a_worker_that_is_not_there_is_one_line(shop: Shop, words: list[str]) -> None:
    result = shop.cli("workers", *words, "nobody-0123456789")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "callsheet: no enrolled worker nobody-0123456789; callsheet workers list shows them\n"
