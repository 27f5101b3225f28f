"""Request bodies that a route reads by itself: pydantic parses each body once, straight from the bytes."""

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
    """Return the `openapi_extra` of a route: the model of its body, or several alternative models."""
    schema = model.model_json_schema()
    if others:
        schemas = [schema, *(other.model_json_schema() for other in others)]
        examples = [example for schema in schemas for example in schema.pop("examples", [])]
        schema = {"anyOf": schemas, **({"examples": examples} if examples else {})}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


async def read(request: Request, model: type[M]) -> M:
    """Return the request body as `model`; raises Problem.

    A body needs a JSON Content-Type. A page of another site cannot send that type without a CORS preflight request.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json") and (kind or await request.body()):
        raise Problem("unsupported_media_type", "send JSON, and say so: Content-Type: application/json")
    try:
        return model.model_validate_json(await request.body())
    except pydantic.ValidationError as error:
        raise of_faults(error.errors(include_url=False, include_input=False, include_context=False)) from None
