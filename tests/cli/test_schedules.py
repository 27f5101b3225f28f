"""`callsheet tasks` and `callsheet schedules`, on each store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callsheet.engine import Engine
from callsheet.engine.schedules import Schedule, declare_schedules, fire_due, schedule_states
from callsheet.engine.task_register import TaskRecord, register
from tests.cli.conftest import Shop

RESIZE = TaskRecord(
    "resize",
    queue="media",
    max_attempts=7,
    description="Make a picture smaller.\n\nMore.",
    arguments={"properties": {"url": {}, "width": {}}, "required": ["url"]},
)
STORES = pytest.mark.parametrize("url", ["sqlite", "postgres", "redis"], indirect=True)


def listed(shop: Shop) -> list[dict[str, Any]]:
    states: list[dict[str, Any]] = json.loads(shop.cli("schedules", "list", "--json").stdout)
    return states


@STORES
def test_tasks_are_listed_with_their_arguments(shop: Shop) -> None:
    shop.add()
    assert "start a worker" in shop.cli("tasks").stdout

    async def serve(engine: Engine) -> None:
        await register(engine.store, [RESIZE])

    shop.ask(serve)
    line = shop.cli("tasks").stdout.splitlines()[-1]
    assert all(part in line for part in ("resize", "url, width?", "media", "Make a picture smaller."))
    (record,) = json.loads(shop.cli("tasks", "resize", "--json").stdout)
    assert (record["queue"], record["max_attempts"]) == ("media", 7)
    unknown = shop.cli("tasks", "sing")
    assert (unknown.exit_code, "sing" in unknown.stderr) == (1, True)


@STORES
def test_a_schedule_is_made_shown_paused_run_and_deleted(shop: Shop) -> None:
    shop.add()

    async def serve(engine: Engine) -> None:
        await register(engine.store, [RESIZE])

    shop.ask(serve)
    words = ("schedules", "put", "nightly", "resize", '{"url": "a"}', "--cron", "30 2 * * *", "--overlap", "skip")
    assert "runs next at" in shop.cli(*words).stdout
    (made,) = listed(shop)
    assert (made["task"], made["payload"], made["queue"], made["max_attempts"]) == ("resize", {"url": "a"}, "media", 7)
    assert len(made["next_runs"]) == 5

    async def fire(engine: Engine) -> None:
        (state,) = await schedule_states(engine.store)
        assert await fire_due(engine.store, now=state.next_slot) == 1

    shop.ask(fire)
    job_id = shop.cli("schedules", "run", "nightly").stdout.strip()
    shown = shop.cli("schedules", "show", "nightly").stdout
    assert (shown.count("next "), shown.count("ran "), job_id in shown) == (5, 2, True)
    assert "is paused" in shop.cli("schedules", "pause", "nightly").stdout
    assert listed(shop)[0]["next_runs"] == []
    assert "runs next at" in shop.cli("schedules", "resume", "nightly").stdout
    assert "is deleted" in shop.cli("schedules", "delete", "nightly").stdout
    assert "no schedules yet" in shop.cli("schedules", "list").stdout


@STORES
def test_a_declared_schedule_is_neither_changed_nor_deleted(shop: Shop) -> None:
    shop.add()

    async def serve(engine: Engine) -> None:
        await declare_schedules(engine.store, {"shop": [Schedule("nightly", "0 3 * * *", "report")]})

    shop.ask(serve)
    for words in (("put", "nightly", "report", "--every", "10m"), ("delete", "nightly")):
        refused = shop.cli("schedules", *words)
        assert (refused.exit_code, "declared by a program" in refused.stderr) == (1, True)
    assert shop.cli("schedules", "pause", "nightly").exit_code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["put", "a", "t"], "cron"),
        (["put", "a", "t", "--cron", "61 * * * *"], "cron"),
        (["put", "a", "t", "--cron", "* * * * *", "--every", "10m"], "every"),
        (["put", "a", "t", "--every", "10m", "--timezone", "Mars/Olympus"], "timezone"),
        (["put", "a", "video.ocr", "--every", "10m"], "video.ocr"),
        (["put", "a", "t", "not json", "--every", "10m"], "JSON"),
        (["show", "nothing"], "nothing"),
        (["run", "nothing"], "nothing"),
        (["pause", "nothing"], "nothing"),
        (["delete", "nothing"], "nothing"),
    ],
)
def test_a_wrong_word_is_told(shop: Shop, words: list[str], told: str) -> None:
    shop.add()
    refused = shop.cli("schedules", *words)
    assert (refused.exit_code != 0, told in refused.stderr) == (True, True), refused.stderr
    assert listed(shop) == []
