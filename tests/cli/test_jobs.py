from __future__ import annotations

import asyncio
import io
import json
import signal

import pytest

from callsheet.cli.drawing import Console
from callsheet.cli.progress_view import follow, job_view
from callsheet.engine import Engine
from callsheet.kernel import commands
from callsheet.kernel.job import RESUMED_FROM, Envelope, NewJob, Status
from callsheet.store.protocol import ClaimRequest, JobQuery
from tests.cli.conftest import Shop, Start
from tests.cli.programs import eventually


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def half_done(shop: Shop) -> str:
    """A running job at 50 %."""
    job_id = shop.add("render")

    async def begin(engine: Engine) -> None:
        (job,) = await engine.claim(ClaimRequest("w1", lease_ms=600_000))
        job = await engine.settle_one(job, commands.advance(job, "decoding"))
        await engine.settle_one(job, commands.progress(job, 50, "half way"))

    shop.ask(begin)
    return job_id


def finish(shop: Shop, job_id: str) -> None:
    async def end(engine: Engine) -> None:
        job = await engine.get(job_id)
        await engine.settle([commands.succeed(job)])

    shop.ask(end)


def test_an_empty_store_has_no_jobs(shop: Shop) -> None:
    assert shop.cli("jobs", "list").stdout == "no jobs yet\n"
    assert shop.cli("jobs", "list", "--queue", "media").stdout == "no such jobs\n"
    assert json.loads(shop.cli("jobs", "list", "--json").stdout) == []
    assert shop.cli("jobs", "dead").stdout == "no dead letters\n"


@pytest.mark.parametrize("url", ["sqlite", "postgres", "redis"], indirect=True)
def test_list_shows_the_newest_first_by_filter(shop: Shop) -> None:
    first, second, third = half_done(shop), shop.add("[bold]", queue="media"), shop.dead()
    lines = shop.cli("jobs", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["id", third, second, first]
    assert "█████░░░░░  50%" in lines[3]
    assert "[bold]" in lines[2]

    def ids(*words: str) -> list[str]:
        return [job["job_id"] for job in json.loads(shop.cli("jobs", "list", "--json", *words).stdout)]

    assert ids("--status", "running", "--status", "dead_letter") == [third, first]
    assert ids("--queue", "media") == ids("--task", "[bold]") == [second]
    assert ids("--limit", "1") == [third]
    assert "there are more than 1" in shop.cli("jobs", "list", "--limit", "1").stderr


def test_an_unknown_status_is_told(shop: Shop) -> None:
    result = shop.cli("jobs", "list", "--status", "lost")
    assert result.exit_code == 2
    assert "'lost' is not one of 'queued'" in result.stderr


def test_show_tells_all_of_a_job(shop: Shop, start: Start) -> None:
    job_id = shop.add("broken", {}, max_attempts=1)
    assert start("worker", shop.app, "--burst").end() == 0
    output = shop.cli("jobs", "show", job_id).stdout
    for words in ("dead_letter", "attempts", "dead_lettered", "events", "RuntimeError: it is broken", "Traceback"):
        assert words in output
    record = json.loads(shop.cli("jobs", "show", job_id, "--json").stdout)
    assert (record["job_id"], record["payload"], record["error"]["code"]) == (job_id, {}, "RuntimeError")
    assert [attempt["outcome"] for attempt in record["attempts"]] == ["dead_lettered"]
    assert [event["type"] for event in record["events"]] == ["queued", "running", "error"]
    assert record["created_at"].endswith("Z")


def test_a_job_may_be_named_by_a_unique_beginning(shop: Shop) -> None:
    ids = ["aaaaaaaa-bbbb-7000-8000-000000000001", "aaaaaaaa-cccc-7000-8000-000000000002"]
    shop.ask(lambda engine: engine.enqueue([NewJob(job_id, "add") for job_id in ids]))
    output = shop.cli("jobs", "show", ids[0][:10].upper(), "--json")
    assert json.loads(output.stdout)["job_id"] == ids[0]
    several = shop.cli("jobs", "show", "aaaaaaaa")
    assert several.exit_code == 2
    assert "2 jobs begin with aaaaaaaa" in several.stderr


@pytest.mark.parametrize("words", [["show"], ["cancel"], ["retry"], ["watch"]])
@pytest.mark.parametrize("job_id", ["00000000", "00000000-0000-4000-8000-000000000000"])
def test_a_job_that_is_not_there_is_one_line(shop: Shop, words: list[str], job_id: str) -> None:
    result = shop.cli("jobs", *words, job_id)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("callsheet: no job")


def test_a_file_that_is_not_there_is_not_taken_for_an_empty_store(shop: Shop) -> None:
    result = shop.cli("jobs", "list", "--database-url", "sqlite:///missing.db")
    assert result.exit_code == 1
    assert "there is no file missing.db" in result.stderr
    assert not (shop.folder / "missing.db").exists()


def test_cancel_ends_what_waits_and_asks_what_runs(shop: Shop) -> None:
    waits, runs, ended_id = shop.add(queue="other"), half_done(shop), shop.dead(queue="third")
    result = shop.cli("jobs", "cancel", waits, runs, ended_id, "--reason", "not wanted")
    assert result.stdout.splitlines() == [f"{waits} canceled", f"{runs} is asked to stop"]
    assert result.exit_code == 1
    assert "callsheet: " in result.stderr
    assert shop.job(waits).cancel_reason == "not wanted"
    assert shop.job(runs).cancel_requested_at is not None


def test_retry_brings_a_job_back(shop: Shop) -> None:
    job_id = shop.dead()
    assert shop.cli("jobs", "retry", job_id).stdout == f"{job_id} queued\n"
    assert shop.job(job_id).status is Status.QUEUED
    assert shop.cli("jobs", "retry", job_id).exit_code == 1


def test_retry_runs_a_dead_transcode_as_a_copy_that_names_it(shop: Shop) -> None:
    envelope = Envelope(1, "YQ==", "YQ==", "kek", 1)
    own = shop.dead(contract="euterpe", credentials=envelope)
    keyed_id = shop.dead(contract="euterpe", concurrency_key="k", concurrency_limit=5)
    result = shop.cli("jobs", "retry", own, keyed_id)
    (line,) = result.stdout.splitlines()
    copy_id = line.removeprefix(f"{own} runs again as ").removesuffix(", queued")
    assert (shop.job(copy_id).contract, shop.job(own).status) == ("euterpe", Status.DEAD_LETTER)
    checkpoints = shop.ask(lambda engine: engine.store.checkpoints(copy_id))
    assert json.loads(checkpoints[RESUMED_FROM]) == own
    assert result.exit_code == 1
    assert keyed_id in result.stderr
    assert "concurrency key" in result.stderr
    (credentials,) = shop.ask(lambda engine: engine.store.credentials([copy_id]))
    assert credentials is not None
    assert credentials.envelope == envelope
    again = shop.cli("jobs", "dead", "--retry-all", "--yes")
    assert f"{own} runs again as {copy_id}, queued" in again.stdout
    assert len(shop.ask(lambda engine: engine.find(JobQuery())).jobs) == 3, "one copy, however often it is asked for"


def test_dead_letters_are_shown_with_their_reasons_and_can_all_be_retried(shop: Shop) -> None:
    jobs = [shop.dead(), shop.dead(queue="media")]
    output = shop.cli("jobs", "dead").stdout
    assert all(job_id in output for job_id in jobs)
    assert "boom: it [bold] broke" in output
    assert json.loads(shop.cli("jobs", "dead", "--json").stdout)[0]["reason"] == "boom: it [bold] broke"
    assert shop.cli("jobs", "dead", "--retry-all", input="n\n").exit_code == 1
    assert [shop.job(job_id).status for job_id in jobs] == [Status.DEAD_LETTER] * 2
    assert shop.cli("jobs", "dead", "--retry-all", "--yes", "--queue", "media").exit_code == 0
    assert shop.cli("jobs", "dead", "--retry-all", "--limit", "1", input="y\n").exit_code == 0
    assert [shop.job(job_id).status for job_id in jobs] == [Status.QUEUED] * 2


def test_a_queue_is_paused_and_resumed(shop: Shop) -> None:
    assert shop.cli("jobs", "pause", "media").stdout == "queue media is paused; paused queues: media\n"
    assert shop.ask(lambda engine: engine.store.paused_queues()) == {"media"}
    assert shop.cli("jobs", "resume", "media").stdout == "queue media is handed out; paused queues: none\n"
    assert not shop.ask(lambda engine: engine.store.paused_queues())


def test_watch_follows_jobs_to_their_end(shop: Shop, start: Start) -> None:
    job_id, failed_id = half_done(shop), shop.dead(queue="other")
    watch = start("jobs", "watch", job_id, failed_id, job_id)
    eventually(lambda: f"{job_id} render progress 50% decoding half way" in watch.printed)
    finish(shop, job_id)
    assert watch.end() == 1
    assert f"{job_id} render succeeded" in watch.printed
    assert f"{failed_id} broken dead_letter: boom: it [bold] broke" in watch.printed


def test_watch_without_an_id_shows_all_that_runs_until_it_is_interrupted(shop: Shop, start: Start) -> None:
    watch = start("jobs", "watch")
    first = half_done(shop)
    eventually(lambda: any(line.startswith(first) for line in watch.printed))
    finish(shop, first)
    second = half_done(shop)
    eventually(lambda: f"{first} render succeeded" in watch.printed)
    eventually(lambda: any(line.startswith(second) for line in watch.printed))
    watch.signal(signal.SIGINT)
    assert watch.end() == 0, watch.said
    assert watch.said == []


def test_a_terminal_gets_bars(shop: Shop) -> None:
    job_id = half_done(shop)
    terminal = Terminal()
    screen = Console(file=terminal, width=160)

    async def follow_to_the_end(engine: Engine) -> None:
        with job_view(screen) as view:
            following = asyncio.create_task(follow(engine, job_id, view))
            while "half way" not in terminal.getvalue():
                await asyncio.sleep(0.01)
            await engine.settle([commands.succeed(await engine.get(job_id))])
            assert (await following).status is Status.SUCCEEDED

    shop.ask(follow_to_the_end)
    pictures = terminal.getvalue()
    assert "decoding: half way" in pictures
    assert "100%" in pictures
    assert "succeeded" in pictures
