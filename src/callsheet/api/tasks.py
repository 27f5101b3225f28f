"""`/v1/tasks`: the tasks that workers have registered, with the JSON schemas of their arguments and results."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response

from callsheet.engine.task_register import TaskRecord
from callsheet.http import problems
from callsheet.http.json_bodies import JsonAnswer
from callsheet.http.parameters import ALWAYS, Reader
from callsheet.http.problems import Problem
from callsheet.http.state import PerServer, state_of

from .task_directory import TaskDirectory

router = APIRouter(tags=["tasks"])
DIRECTORY = PerServer(lambda state: TaskDirectory(state.engine.store))
NAME = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]


class TaskBody(BaseModel):
    """A registered task."""

    name: str
    description: str
    queue: str
    priority: int
    max_attempts: int | None
    timeout_s: float | None
    retry: str
    ttl_s: int | None
    contract: str
    version: str
    language: str
    arguments: JsonValue = Field(description="The JSON schema of the payload; null if the worker gave none.")
    result: JsonValue
    tenant: str = Field(description="The tenant that alone may call the task; empty for tasks of all.")
    seen_at: int = Field(description="Milliseconds since the epoch; workers renew it every ten minutes.")


class TaskList(BaseModel):
    """The tasks that the caller may call, ordered by name."""

    tasks: list[TaskBody]


@router.get("/v1/tasks", summary="List tasks", response_model=TaskList, responses=problems.responses(*ALWAYS))
async def list_tasks(request: Request, who: Reader) -> Response:
    """List the tasks that workers serve, with the JSON schemas of their arguments and results."""
    records = await DIRECTORY.of(state_of(request)).visible(who)
    return JsonAnswer({"tasks": [task_body(record) for record in records]})


@router.get(
    "/v1/tasks/{name}",
    summary="Read a task",
    response_model=TaskBody,
    responses=problems.responses(*ALWAYS, "not_found", "validation_failed"),
)
async def get_task(request: Request, name: NAME, who: Reader) -> Response:
    """Read one task that workers serve."""
    record = await DIRECTORY.of(state_of(request)).record(who, name)
    if record is None:
        raise Problem("not_found", f"no worker has registered a task {name[:100]}")
    return JsonAnswer(task_body(record))


def task_body(record: TaskRecord) -> dict[str, Any]:
    """Return a task as the API shows it."""
    return record._asdict()
