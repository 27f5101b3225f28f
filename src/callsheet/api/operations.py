"""`/v1/operations`: read the progress of an operation on many jobs, and stop an operation."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field
from starlette.requests import Request

from callsheet.engine import operations
from callsheet.engine.operations import Operation
from callsheet.http import problems
from callsheet.http.audit import act
from callsheet.http.json_bodies import JsonAnswer
from callsheet.http.keys import Principal
from callsheet.http.parameters import ALWAYS, Moment, Reader, Writer
from callsheet.http.problems import Problem
from callsheet.http.state import ServerState, state_of

OperationId = Annotated[
    str, Path(description="The operation's id.", examples=["0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"], max_length=64)
]
router = APIRouter(prefix="/v1/operations", tags=["operations"])


class OperationBody(BaseModel):
    """The progress of an operation on many jobs."""

    operation_id: str
    action: str = Field(description="replay or purge")
    status: str = Field(description="running, done or stopped")
    filter: dict[str, str | int | None]
    rate: float | None
    limit: int | None
    done: int
    refused: int = Field(description="Jobs that could not be changed; `why` is the reason of the last one.")
    why: str
    created_at: Moment
    updated_at: Moment
    ended_at: Moment | None


def operation_body(operation: Operation) -> dict[str, Any]:
    """Return an operation as a JSON value."""
    body = operation._asdict()
    selection = operation.wanted._asdict()
    del selection["requester_id"]
    selection["task"] = selection.pop("kind")
    filters = {name: value for name, value in sorted(selection.items()) if value is not None}
    return {**{name: body[name] for name in OperationBody.model_fields if name in body}, "filter": filters}


@router.get(
    "/{operation_id}",
    summary="Read an operation",
    response_model=OperationBody,
    responses=problems.responses(*ALWAYS, "not_found"),
)
async def get_operation(request: Request, operation_id: OperationId, who: Reader) -> JsonAnswer:
    """Read the operation's counts as of the last batch. The record is kept for a week after the operation ends."""
    return JsonAnswer(operation_body(await _find_operation(state_of(request), operation_id, who)))


@router.post(
    "/{operation_id}/stop",
    summary="Stop an operation",
    response_model=OperationBody,
    responses=problems.responses(*ALWAYS, "not_found"),
)
async def stop_operation(request: Request, operation_id: OperationId, who: Writer) -> JsonAnswer:
    """Stop the operation before its next batch; finished batches stay done.

    Ended operations are returned as they are.
    """
    state = state_of(request)
    operation = await _find_operation(state, operation_id, who)
    current = await operations.stop(state.engine.store, operation_id) or operation
    await act(request, "operation.stopped", target=operation_id, requester_id=operation.wanted.requester_id or "")
    return JsonAnswer(operation_body(current))


async def _find_operation(state: ServerState, operation_id: str, who: Principal) -> Operation:
    """Return an operation of the caller's tenant; raises Problem `not_found`, also for another tenant's operation."""
    operation = await operations.get(state.engine.store, operation_id) if operation_id.isprintable() else None
    if operation is None or who.sees not in (None, operation.wanted.requester_id):
        raise Problem("not_found", f"no operation {operation_id}")
    return operation
