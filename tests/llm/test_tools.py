"""Tools run in a child process, within limits, and nothing of them is left."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from callsheet import Callsheet, JobCanceled
from callsheet.kernel.errors import InvalidTask
from callsheet.kernel.job import Status
from callsheet.llm.tools import Tools

from .conftest import alive, enqueued, error_of, run, working


async def until_gone(*pids: int) -> None:
    async with asyncio.timeout(60):
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.02)


def pids_in(path: Path) -> list[int]:
    """Return the process ids that a tool printed; empty if the time limit came first."""
    return [int(pid) for pid in path.read_text("utf-8").split()] if path.exists() else []


async def called(app: Callsheet, name: str, **arguments: Any) -> Any:
    job = await run(app, "tool", name=name, arguments=arguments)
    result = await job.result(timeout=60)
    assert result["name"] == name
    return result["result"]


async def test_a_tool_answers(app: Callsheet) -> None:
    assert await called(app, "word_count", text="one two three", minimum=4) == {"words": 1}


async def test_typed_arguments_and_async_functions(app: Callsheet) -> None:
    assert await called(app, "halved", size={"width": 8, "height": 6}) == {"width": 4, "height": 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({}, "text: Field required"), ({"text": 5}, "text: "), ({"text": "x", "more": 1}, "more: Extra inputs")],
)
async def test_arguments_are_checked_before_anything_starts(
    app: Callsheet, arguments: dict[str, Any], message: str
) -> None:
    error = await error_of(await run(app, "tool", name="word_count", arguments=arguments))
    assert error["code"] == "invalid_payload"
    assert message in error["message"]


async def test_an_unknown_tool_fails_with_the_names_there_are(app: Callsheet) -> None:
    job = await run(app, "tool", name="os.system", arguments={"command": "id"})
    error = await error_of(job)
    assert ((await job.get()).status, error["code"]) == (Status.FAILED, "unknown_tool")
    assert "word_count" in error["message"]


async def test_secrets_are_not_in_a_tools_environment(app: Callsheet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_LLM_API_KEY", "sk-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret too")
    around = await called(app, "surroundings")
    environment = around["environment"]
    assert environment.keys() - {"LC_CTYPE"} == {"PATH", "HOME", "LANG"}  # Python itself sets LC_CTYPE in a C locale
    assert "secret" not in str(environment)
    assert environment["HOME"] == around["folder"]
    assert around["session"]
    assert not Path(around["folder"]).exists(), "the workspace ends with the attempt"


async def test_what_a_tool_raises_is_told_and_tried_again(app: Callsheet) -> None:
    job = await run(app, "tool", name="fail", arguments={"message": "no such city"})
    assert "LookupError: no such city" in (await error_of(job))["message"]
    assert (await job.get()).status is Status.QUEUED


@pytest.mark.parametrize(
    ("name", "message"),
    [("hog", "more than 512 MB of memory"), ("spin", "more than 1 s of CPU"), ("flood_result", "more than 64 KB")],
)
async def test_a_tool_over_its_limit_is_stopped_for_good(app: Callsheet, name: str, message: str) -> None:
    arguments = {"kilobytes": 100} if name == "flood_result" else {}
    job = await run(app, "tool", name=name, arguments=arguments)
    error = await error_of(job)
    assert ((await job.get()).status, error["code"]) == (Status.FAILED, "tool_limit"), error
    assert message in error["message"]


async def test_a_result_within_the_limit_passes(app: Callsheet) -> None:
    assert len(await called(app, "flood_result", kilobytes=60)) == 60 * 1024


async def test_a_flood_of_words_is_read_and_forgotten(app: Callsheet) -> None:
    assert await called(app, "flood_stderr") == "quiet at last"


@pytest.mark.parametrize(("name", "message"), [("big_file", "File too large"), ("open_many", "Too many open files")])
async def test_files_are_limited(app: Callsheet, name: str, message: str) -> None:
    assert message in (await error_of(await run(app, "tool", name=name)))["message"]


async def test_a_tool_that_takes_too_long_is_killed_with_all_that_it_started(app: Callsheet, tmp_path: Path) -> None:
    job = await run(app, "tool", name="sleep", arguments={"pid_file": str(tmp_path / "pids")})
    error = await error_of(job)
    assert ((await job.get()).status, error["code"]) == (Status.FAILED, "tool_limit")
    assert "longer than 3 s" in error["message"]
    await until_gone(*pids_in(tmp_path / "pids"))


async def test_cancelling_kills_the_tool_and_its_programs(app: Callsheet, tmp_path: Path) -> None:
    job = await enqueued(app, "tool", name="wait", arguments={"pid_file": str(tmp_path / "pids")})
    async with working(app):
        async with asyncio.timeout(60):
            while not (tmp_path / "pids").exists():
                await asyncio.sleep(0.02)
        pids = pids_in(tmp_path / "pids")
        assert all(alive(pid) for pid in pids)
        await job.cancel("stop it")
        with pytest.raises(JobCanceled):
            await job.result(timeout=60)
        await until_gone(*pids)


async def test_a_worker_that_is_killed_takes_its_tools_along(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path; from tests.llm.toolbox import tools; "
        "asyncio.run(tools.call('wait', {'pid_file': sys.argv[1]}, Path(sys.argv[2])))"
    )
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path / "pids"), str(tmp_path), cwd=Path(__file__).parents[2]
    )
    async with asyncio.timeout(60):
        while not (tmp_path / "pids").exists():
            await asyncio.sleep(0.02)
    pids = pids_in(tmp_path / "pids")
    assert len([pid for pid in pids if alive(pid)]) == 3
    worker.kill()
    await worker.wait()
    await until_gone(*pids)


async def test_a_tool_finds_nothing_to_read(app: Callsheet) -> None:
    assert await called(app, "listen") == ""


async def test_a_fork_bomb_is_stopped(app: Callsheet, tmp_path: Path) -> None:
    job = await run(app, "tool", name="bomb", arguments={"count_file": str(tmp_path / "count")})
    error = await error_of(job)
    assert error["code"] == "tool_limit"
    assert "more than 8 processes" in error["message"]
    assert 7 < (tmp_path / "count").stat().st_size <= 500


async def test_what_a_tool_leaves_behind_ends_with_it(app: Callsheet, tmp_path: Path) -> None:
    assert await called(app, "leave_behind", pid_file=str(tmp_path / "pids")) == "done"
    await until_gone(*pids_in(tmp_path / "pids"))


async def test_a_tool_that_dies_is_told_of(app: Callsheet) -> None:
    error = await error_of(await run(app, "tool", name="die"))
    assert "ended without an answer, by signal 11" in error["message"]


def test_a_tool_that_a_child_could_not_find_is_refused_at_once() -> None:
    tools = Tools()

    def inner() -> None: ...

    with pytest.raises(InvalidTask, match="top level"):
        tools.tool(inner)
    with pytest.raises(InvalidTask, match="top level"):
        tools.tool(name="x")(lambda: None)


def test_a_tool_that_cannot_be_checked_is_refused_at_once() -> None:
    with pytest.raises(InvalidTask, match="name each parameter"):
        Tools().tool(anything)
    with pytest.raises(InvalidTask, match="no limit patience"):
        Tools().tool(patience=3)(nothing)
    tools = Tools()
    tools.tool(nothing)
    with pytest.raises(InvalidTask, match="two tools"):
        tools.tool(nothing)


def anything(**arguments: int) -> None: ...


def nothing() -> None: ...
