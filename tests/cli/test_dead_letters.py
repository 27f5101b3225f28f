from __future__ import annotations

import json
from typing import Any

import pytest

from callsheet.engine import Engine
from callsheet.kernel import commands
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from tests.cli.conftest import Shop

THREE = pytest.mark.parametrize("url", ["sqlite", "postgres", "redis"], indirect=True)


def died(shop: Shop, code: str, **fields: Any) -> str:
    """A new dead letter of a worker over HTTP."""
    job_id = shop.add("resize", {"n": 1}, max_attempts=1, queue="q", **fields)

    async def fail(engine: Engine) -> None:
        (job,) = await engine.claim(ClaimRequest("gpu1~5ec2e7", ("q",)))
        await engine.settle_one(job, commands.fail(job, JobError(code, "it [bold] broke"), rand=0.5))

    shop.ask(fail)
    return job_id


def told(shop: Shop, *words: str) -> Any:
    return json.loads(shop.cli("dead-letters", *words, "--json").stdout)


def listed(shop: Shop, *words: str) -> list[str]:
    return [job["job_id"] for job in told(shop, "list", *words)]


def statuses(shop: Shop, *job_ids: str) -> list[str]:
    jobs = shop.ask(lambda engine: engine.store.get(job_ids))
    return [job.status.value if job is not None else "gone" for job in jobs]


@THREE
def test_list_filters_and_shows_reasons(shop: Shop) -> None:
    first, second = died(shop, "oom"), died(shop, "429", contract="control_plane")
    lines = shop.cli("dead-letters", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["id", second, first]
    assert "oom: it [bold] broke" in lines[2]
    assert listed(shop, "--error-code", "oom") == [first]
    assert listed(shop, "--contract", "control_plane") == listed(shop, "--limit", "1") == [second]
    assert listed(shop, "--task", "resize", "--queue", "q", "--ended-as", "both") == [second, first]
    assert listed(shop, "--ended-as", "failed") == listed(shop, "--ended-to", "2020-01-01T00:00:00Z") == []
    assert listed(shop, "--ended-from", "2020-01-01T00:00:00Z", "--created-to", "2100-01-01T00:00:00Z") == [
        second,
        first,
    ]
    assert "there are more than 1" in shop.cli("dead-letters", "list", "--limit", "1").stderr
    assert shop.cli("dead-letters", "list", "--queue", "none").stdout == "no dead letters\n"


def test_show_tells_what_to_do_and_no_hash_of_a_token(shop: Shop) -> None:
    job_id = died(shop, "429")
    output = shop.cli("dead-letters", "show", job_id[:13])
    for words in ("dead_letter", "gpu1", "429: it [bold] broke", "throttled: the other side asked for less"):
        assert words in output.stdout
    letter = told(shop, "show", job_id)
    assert (letter["error_class"], letter["attempts"][0]["worker_id"]) == ("throttled", "gpu1")
    assert "5ec2e7" not in output.stdout + json.dumps(letter)
    waiting = shop.add()
    refusal = shop.cli("dead-letters", "show", waiting)
    assert (refusal.exit_code, refusal.stderr) == (1, f"callsheet: job {waiting} is queued, and no dead letter\n")


def test_replay_brings_back_those_named_or_all_that_fit(shop: Shop) -> None:
    first, second, third = died(shop, "a"), died(shop, "b"), died(shop, "b", contract="redis_gateway")
    assert shop.cli("dead-letters", "replay", first).stdout == "replay: 1 done, 0 refused\n"
    assert statuses(shop, first, second, third) == ["queued", "dead_letter", "dead_letter"]
    refusal = shop.cli("dead-letters", "replay", "--error-code", "b", input="n\n")
    assert (refusal.exit_code, "replay 2 jobs?" in refusal.stderr) == (1, True)
    assert statuses(shop, second) == ["dead_letter"]
    result = told(shop, "replay", "--error-code", "b", "--yes", "--rate", "1000")
    assert result == {"done": 2, "refused": 0, "why": ""}
    assert statuses(shop, second, third) == ["queued", "dead_letter"]  # of the third a copy runs
    copies = shop.ask(lambda engine: engine.store.counts())["q"]
    assert {status.value: count for status, count in copies.items()} == {"queued": 3, "dead_letter": 1}


def test_a_replay_that_is_refused_ends_with_one(shop: Shop) -> None:
    job_id = died(shop, "500", contract="redis_gateway", concurrency_key="k", concurrency_limit=5)
    result = shop.cli("dead-letters", "replay", job_id)
    assert result.exit_code == 1
    assert "0 done, 1 refused: cannot replay" in result.stdout
    assert statuses(shop, job_id) == ["dead_letter"]


def test_purge_asks_and_deletes(shop: Shop) -> None:
    first, second, waiting = died(shop, "a"), died(shop, "b"), shop.add()
    assert shop.cli("dead-letters", "purge", first, input="n\n").exit_code == 1
    assert statuses(shop, first) == ["dead_letter"]
    request = shop.cli("dead-letters", "purge", first, input="y\n")
    assert "purge 1 jobs?" in request.stderr
    assert request.stdout.endswith("purge: 1 done, 0 refused\n")
    assert told(shop, "purge", "--yes") == {"done": 1, "refused": 0, "why": ""}
    assert statuses(shop, first, second, waiting) == ["gone", "gone", "queued"]
    assert told(shop, "purge", "--yes") == {"done": 0, "refused": 0, "why": ""}


@pytest.mark.parametrize("words", [["show"], ["replay"], ["purge", "--yes"]])
def test_a_job_that_is_not_there_is_one_line(shop: Shop, words: list[str]) -> None:
    result = shop.cli("dead-letters", *words, "00000000-0000-4000-8000-000000000000")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("callsheet: no job")
