"""Bodies that a route reads by itself: parsed once, by the validator, straight from their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pydantic

from .problems import Problem, of_faults

if TYPE_CHECKING:
    from starlette.requests import Request

M = TypeVar("M", bound=pydantic.BaseModel)


def documented(
    model: type[pydantic.BaseModel], *others: type[pydantic.BaseModel], required: bool = True
) -> dict[str, Any]:
    """For `openapi_extra`: the body that a route reads, or one of several."""
    schema = model.model_json_schema()
    if others:
        schemas = [schema, *(other.model_json_schema() for other in others)]
        examples = [example for schema in schemas for example in schema.pop("examples", [])]
        schema = {"anyOf": schemas, **({"examples": examples} if examples else {})}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


async def read(request: Request, model: type[M]) -> M:
    """A body as its model; raises Problem.

    The type must be said, unless there is no body: what a page of another site can send without asking first never has
    this one.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json") and (kind or await request.body()):
        raise Problem("unsupported_media_type", "send JSON, and say so: Content-Type: application/json")
    try:
        return model.model_validate_json(await request.body())
    except pydantic.ValidationError as error:
        raise of_faults(error.errors(include_url=False, include_input=False, include_context=False)) from None
