"""Declaring tasks and making jobs of calls: all errors are reported at once, and no value is cast."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from typing import Any

import pydantic
import pytest

from callsheet import Backoff, Callsheet, Context, RetryPolicy
from callsheet.kernel.contracts import read_policy
from callsheet.kernel.durations import seconds
from callsheet.kernel.errors import InvalidInput, InvalidPayload, InvalidTask, UnknownTask

app = Callsheet("sqlite::memory:")


class Size(enum.Enum):
    SMALL = "small"


@dataclasses.dataclass
class Box:
    width: int
    tags: list[str]


class Model(pydantic.BaseModel):
    at: dt.datetime


@app.task
async def everything(
    ctx: Context,
    text: str,
    box: Box,
    model: Model,
    *,
    size: Size = Size.SMALL,
    ids: list[uuid.UUID] | None = None,
    blob: bytes = b"",
    anything: Any = None,
) -> None: ...


@app.task
async def narrow(n: int, ratio: float = 1.0) -> None: ...


def test_rich_types_travel_and_come_back_as_they_were() -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
    arguments = {
        "text": "ünï",
        "box": Box(3, ["a"]),
        "model": Model(at=at),
        "size": Size.SMALL,
        "ids": [uuid.UUID(int=7)],
        "blob": b"utf-8 only",
        "anything": {"a": [1, None, 2.5]},
    }
    definition = everything.definition
    assert definition.arguments(definition.payload((), arguments)) == arguments


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"n": "1"},
        {"n": 1.0},
        {"n": True},
        {"n": 1, "ratio": "2"},
        {"n": 1, "ratio": float("inf")},
        {"n": 1, "more": 2},
        {"n": None},
    ],
    ids=repr,
)
def test_what_does_not_fit_is_refused_when_it_is_enqueued(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload, match="narrow: "):
        narrow.new_job(**wrong)


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, dt.datetime.now(dt.UTC), object(), {"a": {1, 2}}], ids=range(5))
def test_an_unannotated_value_must_be_json(value: Any) -> None:
    with pytest.raises(InvalidPayload):
        everything.new_job("x", Box(1, []), Model(at=dt.datetime.now(dt.UTC)), anything=value)


def test_a_value_that_would_change_on_its_way_is_refused() -> None:
    other = Callsheet("sqlite::memory:")

    @other.task
    async def loose(things: dict) -> None: ...

    loose.new_job(things={"a": 1})
    with pytest.raises(InvalidPayload, match="would change"):
        loose.new_job(things={"when": dt.datetime.now(dt.UTC)})


def test_bytes_that_json_cannot_hold_are_refused() -> None:
    with pytest.raises(InvalidPayload, match="cannot be written as JSON"):
        everything.new_job("x", Box(1, []), Model(at=dt.datetime.now(dt.UTC)), blob=b"\x00\xff")


def test_the_error_does_not_show_the_value() -> None:
    with pytest.raises(InvalidPayload) as excinfo:
        narrow.new_job(n="my-secret-password")  # type: ignore[arg-type]
    assert "secret" not in str(excinfo.value)


def test_positional_arguments_are_bound_by_the_signature() -> None:
    assert narrow.new_job(1, 2.5).payload == narrow.new_job(n=1, ratio=2.5).payload
    with pytest.raises(InvalidPayload, match="too many positional"):
        narrow.new_job(1, 2.5, 3)  # type: ignore[call-arg]


def test_what_cannot_be_a_task_is_told_at_declaration() -> None:
    other = Callsheet("sqlite::memory:")

    async def variadic(*args: int) -> None: ...
    async def named(delay: int) -> None: ...
    async def odd(x: "NoSuchType") -> None: ...  # type: ignore[name-defined] # noqa: F821, UP037
    async def opaque(x: object()) -> None: ...  # type: ignore[valid-type]
    async def fine() -> None: ...

    for function, why in ((variadic, "name each"), (named, "rename the parameter"), (odd, "NoSuchType")):
        with pytest.raises(InvalidTask, match=why):
            other.task(function)
    with pytest.raises(InvalidTask):
        other.task(opaque)
    with pytest.raises(InvalidTask, match="plain function"):
        other.task(executor="process")(fine)
    with pytest.raises(InvalidTask, match="no option qeue"):
        other.task(qeue="x")(fine)  # type: ignore[call-overload]
    other.task(fine)
    with pytest.raises(InvalidTask, match="another name="):
        other.task(fine)
    other.task(name="fine again")(fine)
    with pytest.raises(UnknownTask, match="fine, fine again"):
        other.task_named("nothing")


def test_options_become_the_job() -> None:
    other = Callsheet("sqlite::memory:")

    @other.task(queue="media", priority=3, max_attempts=7, ttl="2h", retry=["1s", "1m"])
    async def task() -> None: ...

    new = task.options(priority=9, delay="90s", unique_key="u", idempotency_key="k", concurrency_key="c").new_job()
    assert (new.queue, new.priority, new.max_attempts, new.ttl_s) == ("media", 9, 7, 7200)
    assert (new.delay_ms, new.unique_key, new.concurrency_key) == (90_000, "u", "c")
    assert new.idempotency is not None
    assert read_policy(new.retry).backoff == Backoff(table_ms=(1_000, 60_000))
    assert task.new_job(depends_on=new).depends_on == (new.job_id,)  # type: ignore[call-arg]
    at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    assert task.options(run_at=at).new_job().run_at == 1_893_456_000_000
    with pytest.raises(InvalidInput, match="time zone"):
        task.options(run_at=at.replace(tzinfo=None)).new_job()
    with pytest.raises(InvalidInput, match="no option dealy"):
        task.options(dealy=3).new_job()  # type: ignore[call-arg]


def test_retry_is_a_policy_a_backoff_delays_or_none() -> None:
    other = Callsheet("sqlite::memory:")

    def attempts(**options: Any) -> tuple[int | None, str]:
        @other.task(name=str(uuid.uuid4()), **options)
        async def task() -> None: ...

        return task.definition.max_attempts, task.definition.retry

    assert attempts() == (None, "")
    assert attempts(retry=False)[0] == 1
    assert attempts(retry="cortana") == (None, "cortana")
    assert attempts(retry=["1s", 2, "3s"])[0] == 4
    assert attempts(retry=RetryPolicy(max_attempts=9))[0] == 9
    assert attempts(retry=Backoff(base_ms=5), max_attempts=2)[0] == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10),
        ("0.5", 0.5),
        (3, 3),
        ("500ms", 0.5),
        ("10m", 600),
        ("1h30m", 5400),
        ("2d", 172_800),
        (dt.timedelta(hours=1), 3600),
    ],
)
def test_durations_are_read_as_people_write_them(text: Any, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "ten", "10x", "-5", -1, True, None, float("inf"), "5m10"])
def test_what_is_no_duration_is_refused(text: Any) -> None:
    with pytest.raises(InvalidInput, match="no duration"):
        seconds(text)
