"""`callsheet ask` and `callsheet watch` as programs of their own, against the real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from callsheet.cli.remote_jobs import SOON, printable
from callsheet.client import Client
from tests.client.conftest import ServerState
from tests.client.proxy import anywhere, before
from tests.http.live import ADMIN

ROOT = Path(__file__).parents[2]
NOBODY = "00000000-0000-7000-8000-000000000000"
# The server asks for pauses of seconds between connections; the tests cannot wait for hundreds of them.
HASTY = """
import sys
from callsheet.cli import main, remote_jobs
remote_jobs.SOON = remote_jobs.SOON._replace(first_pause_s=0.001, longest_pause_s=0.005)
main()
"""


class Ended(NamedTuple):
    code: int | None
    out: str
    said: str


@contextlib.asynccontextmanager
async def program(
    url: str, *words: str, hasty: bool = False, variables: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    environ = {"CALLSHEET_URL": url, "CALLSHEET_API_KEY": ADMIN, "PYTHONPATH": str(ROOT / "src"), **(variables or {})}
    how = ("-c", HASTY) if hasty else ("-m", "callsheet.cli")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *how, *words, env={**os.environ, **environ}, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def ended(process: Process, text_in: str | None = None) -> Ended:
    async with asyncio.timeout(60):
        out, output = await process.communicate(None if text_in is None else text_in.encode())
    return Ended(process.returncode, out.decode(), output.decode())


async def run(site: ServerState, *words: str, text_in: str | None = None, **variables: str) -> Ended:
    async with program(site.url, *words, variables=variables) as process:
        return await ended(process, text_in)


async def read(process: Process, expected: str) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert await process.stdout.readexactly(len(expected)) == expected.encode()


async def test_ask_prints_tokens_as_they_come(site: ServerState) -> None:
    async with program(site.url, "ask", "gate 3") as process:
        await read(process, "0 1 2 ")
        site.gate.set()
        assert await ended(process) == Ended(0, "\n", "")


async def test_ask_takes_its_question_from_anywhere(site: ServerState, client: Client) -> None:
    words = ("ask", "-", "--system", "Be short.", "--model", "m1", "--task", "chat")
    assert await run(site, *words, text_in="echo from stdin") == Ended(0, "from stdin\n", "")
    (job,) = [job async for job in client.list()]
    assert job.payload == {"prompt": "echo from stdin", "system": "Be short.", "model": "m1"}
    assert (await run(site, "ask", "echo hi", "--url", "http://127.0.0.1:9", CALLSHEET_URL=site.url)).code == 1
    assert (await run(site, "ask", "echo hi", "--url", site.url, CALLSHEET_URL="nonsense")).out == "hi\n"


async def test_ask_tells_of_a_failure_and_ends_with_1(site: ServerState) -> None:
    result = await run(site, "ask", "fail")
    assert (result.code, result.out) == (1, "0 1 2 \n")
    assert "error: broken: it is broken" in result.said
    record = json.loads((await run(site, "ask", "fail", "--json")).out)
    assert (record["status"], record["error"]["code"]) == ("error", "broken")


async def test_ask_as_json_prints_the_ended_job(site: ServerState) -> None:
    result = await run(site, "ask", "count 2", "--json")
    record = json.loads(result.out)
    assert (result.code, record["status"], record["result"]["text"]) == (0, "done", "0 1 ")


async def test_an_answer_that_begins_anew_says_so(site: ServerState) -> None:
    result = await run(site, "ask", "again 2")
    assert (result.code, result.out) == (0, "0 1 \n0 1 \n")
    assert result.said == "callsheet: the attempt was interrupted; the answer starts again\n"


async def test_ctrl_c_cancels_the_job_and_says_so(site: ServerState, client: Client) -> None:
    async with program(site.url, "ask", "gate 1") as process:
        await read(process, "0 ")
        process.send_signal(signal.SIGINT)
        result = await ended(process)
    (job,) = [job async for job in client.list()]
    assert (result.code, result.out) == (130, "")
    assert f"job {job.job_id} will be canceled" in result.said
    assert (await client.ended(job.job_id)).status == "canceled"


async def test_a_job_that_others_cancel_ends_ask_with_130(site: ServerState, client: Client) -> None:
    async with program(site.url, "ask", "gate 1") as process:
        await read(process, "0 ")
        (job,) = [job async for job in client.list()]
        await client.cancel(job.job_id)
        result = await ended(process)
    assert (result.code, result.out) == (130, "\n")
    assert f"job {job.job_id} canceled" in result.said


async def test_ask_and_watch_repeat_nothing_after_cuts(site: ServerState, client: Client) -> None:
    async with before(site.url, anywhere(3, 6_000)) as proxy:
        async with program(proxy.url, "ask", "count 300", hasty=True) as process:
            request = await ended(process)
        (job,) = [job async for job in client.list()]
        async with program(proxy.url, "watch", job.job_id, "--json", hasty=True) as process:
            watched_jobs = await ended(process)
        assert proxy.cuts >= 20
    assert (request.code, request.out) == (0, "".join(f"{number} " for number in range(300)) + "\n")
    assert [json.loads(line)["id"] for line in watched_jobs.out.splitlines()] == await site.event_ids(job.job_id)


async def test_watch_shows_events_while_they_happen(site: ServerState, client: Client) -> None:
    job_id = (await client.create("chat", {"prompt": "gate 1"})).job_id
    await site.begun.wait()
    async with program(site.url, "watch", job_id) as process:
        assert process.stdout is not None
        lines = [(await process.stdout.readline()).decode() for _ in range(4)]
        site.gate.set()
        result = await ended(process)
    assert [line.split(maxsplit=1)[1].rstrip() for line in lines] == [
        "queued      0% gateway.enqueue",
        "running     0%",
        'token       0% "0 "',
        "progress   50% half way",
    ]
    assert (result.code, result.said) == (0, f"callsheet: job {job_id} done\n")
    assert result.out.split(maxsplit=1)[1] == "done      100%\n"


async def test_watch_goes_on_after_an_id_and_ends_as_the_job_did(site: ServerState, client: Client) -> None:
    job_id = (await client.create("chat", {"prompt": "fail"})).job_id
    await client.ended(job_id)
    ids = await site.event_ids(job_id)
    result = await run(site, "watch", job_id, "--after", ids[-3], "--json")
    assert (result.code, [json.loads(line)["id"] for line in result.out.splitlines()]) == (1, ids[-2:])
    over = await run(site, "watch", job_id, "--after", ids[-1])
    assert (over.code, over.out) == (1, "")
    assert "error: broken: it is broken" in over.said


async def test_ctrl_c_stops_watching_and_nothing_else(site: ServerState, client: Client) -> None:
    job_id = (await client.create("chat", {"prompt": "gate 1"})).job_id
    async with program(site.url, "watch", job_id) as process:
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert (await ended(process)).code == 130
    site.gate.set()
    assert (await client.ended(job_id)).status == "done"


@pytest.mark.parametrize(
    ("words", "variables", "code", "message"),
    [
        (["ask", " "], {}, 2, "the question is empty"),
        (["ask", "hi"], {"CALLSHEET_API_KEY": ""}, 1, "export CALLSHEET_API_KEY="),
        (["ask", "hi"], {"CALLSHEET_API_KEY": "cs live"}, 2, "the API key has characters that no key has"),
        (["ask", "hi"], {"CALLSHEET_URL": "nonsense"}, 2, "must begin with http://"),
        (["watch", NOBODY], {}, 1, "no job"),
        (["watch", NOBODY, "--after", "x"], {}, 2, "an event id looks like"),
    ],
)
async def test_what_is_wrong_is_one_line(
    site: ServerState, words: list[str], variables: dict[str, str], code: int, message: str
) -> None:
    result = await run(site, *words, **variables)
    assert (result.code, result.out) == (code, "")
    (line,) = result.said.splitlines()
    assert line.startswith("callsheet: ")
    assert message in line


def test_a_terminal_takes_no_orders_from_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a\x1b]0;owned\x07\x1b[2J\tb\n\x9bc"
    assert printable(text) == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert printable(text) == "a]0;owned[2J\tb\nc"


@pytest.mark.parametrize("words", [["ask", "hi"], ["watch", NOBODY]], ids=["ask", "watch"])
async def test_a_missing_server_is_told_of_soon(words: list[str]) -> None:
    assert SOON.retry_for_s <= 5.0
    async with program("http://127.0.0.1:9", *words) as process:
        result = await ended(process)
    assert result.code == 1
    assert "callsheet: no answer from http://127.0.0.1:9" in result.said
