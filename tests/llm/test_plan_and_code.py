"""plan and code read what the model says; all six refuse what they cannot read."""

from __future__ import annotations

import json

import pytest

from callsheet import Callsheet, JobFailed
from callsheet.kernel.job import Status

from .conftest import error_of, events_of, run
from .server import USAGE, Server, say, text_of

PLAN = json.dumps({"steps": [{"title": "Boil water", "detail": "in a pot"}, {"title": "Add tea"}]})


@pytest.mark.parametrize(
    "text",
    [PLAN, f"```json\n{PLAN}\n```", f"Sure! {PLAN} Enjoy.", json.dumps(json.loads(PLAN)["steps"])],
    ids=["bare", "fenced", "among words", "a list"],
)
async def test_a_plan_has_steps(app: Callsheet, server: Server, text: str) -> None:
    server.turns = [say(text)]
    job = await run(app, "plan", prompt="tea", system="in English")
    result = await job.result()
    assert result["steps"] == [{"title": "Boil water", "detail": "in a pot"}, {"title": "Add tea"}]
    assert result["text"] == text
    system = server.chats[0]["messages"][0]
    assert system["role"] == "system"
    assert "steps" in system["content"]
    assert system["content"].endswith("in English")


async def test_a_plan_that_cannot_be_read_is_asked_for_once_more(app: Callsheet, server: Server) -> None:
    server.turns = [say("First, boil water."), say(PLAN)]
    job = await run(app, "plan", prompt="tea")
    result = await job.result()
    assert len(result["steps"]) == 2
    assert result["usage"]["total_tokens"] == 2 * USAGE["total_tokens"]
    assert [m["role"] for m in server.chats[1]["messages"]] == ["system", "user", "assistant", "user"]
    assert text_of(await events_of(app, job)) == PLAN, "the first text was declared void"


@pytest.mark.parametrize("text", ["no JSON", '{"steps": []}', '{"steps": [{"name": "x"}]}', '"x"'])
async def test_a_model_that_cannot_plan_fails_the_job(app: Callsheet, server: Server, text: str) -> None:
    server.turns = [say(text)]
    job = await run(app, "plan", prompt="tea")
    assert ((await job.get()).status, (await error_of(job))["code"]) == (Status.FAILED, "plan_unreadable")
    assert server.connections == 2


async def test_code_comes_in_blocks(app: Callsheet, server: Server) -> None:
    text = "A file:\n```python\nprint('hi')\n\n```\nand\n~~~~ Bash title=x\n```\nls\n~~~~\n``` \nnot closed"
    server.turns = [say(text)]
    result = await (await run(app, "code", prompt="hello")).result()
    assert result["text"] == text
    assert result["blocks"] == [
        {"language": "python", "code": "print('hi')\n"},
        {"language": "bash", "code": "```\nls"},
        {"language": "", "code": "not closed"},
    ]
    assert "fenced block" in server.chats[0]["messages"][0]["content"]


@pytest.mark.parametrize("task", ["chat", "plan", "code", "tool", "rag", "embed"])
async def test_a_payload_that_was_not_json_is_answered_clearly(app: Callsheet, task: str) -> None:
    engine = await app.engine()
    new = app.task_named(task).definition.new_job("00000000-0000-4000-8000-000000000001", '{"_raw": "not json"}')
    await engine.enqueue([new])
    await app.worker().run(burst=True)
    with pytest.raises(JobFailed, match="the payload was not JSON; send a JSON object") as excinfo:
        await app.job(new.job_id).result()
    assert excinfo.value.job_error["code"] == "invalid_payload"


@pytest.mark.parametrize("task", ["chat", "plan", "code", "tool", "rag", "embed"])
async def test_a_key_that_no_task_knows_is_refused(app: Callsheet, task: str) -> None:
    engine = await app.engine()
    new = app.task_named(task).definition.new_job("00000000-0000-4000-8000-000000000002", '{"promt": "x"}')
    await engine.enqueue([new])
    await app.worker().run(burst=True)
    with pytest.raises(JobFailed, match="promt: Extra inputs are not permitted"):
        await app.job(new.job_id).result()
