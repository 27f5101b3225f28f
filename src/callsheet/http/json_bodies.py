"""JSON from clients and for them: pydantic parses a request's body once, straight from the bytes.

A foreign worker may have stored text that is not valid JSON, or that UTF-8 cannot encode.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

import pydantic
from starlette.responses import Response

from .problems import Problem, of_faults

if TYPE_CHECKING:
    from starlette.requests import Request

BREAKS = re.compile("[\x85\u2028\u2029\ud800-\udfff]")  # line ends for many clients, and lone surrogates
MARGIN = 20  # levels of spare recursion, so that parsed JSON can be encoded inside a response


def one_line(text: str) -> str:
    """Return JSON text with every character escaped that would break a line or the UTF-8 encoding."""
    return text if text.isascii() else BREAKS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def json_text(value: Any) -> str:
    """Return a value as JSON on one line."""
    return one_line(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def parse_json(text: str) -> Any:
    """Return the value of JSON text, or `{"_raw": text}` if the text is invalid or nested too deeply."""
    try:
        return _read(text, MARGIN)
    except (ValueError, RecursionError):
        return {"_raw": text}


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


_STRICT = json.JSONDecoder(parse_constant=_no_constant)


def _read(text: str, margin: int) -> Any:
    return _read(text, margin - 1) if margin else _STRICT.decode(text)


class JsonAnswer(Response):
    """A response whose body is a value as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the value as encoded JSON."""
        return json_text(content).encode()


M = TypeVar("M", bound=pydantic.BaseModel)


def request_body(
    model: type[pydantic.BaseModel], *others: type[pydantic.BaseModel], is_required: bool = True
) -> dict[str, Any]:
    """Return the `openapi_extra` of a route: the model of its body, or several alternative models."""
    schema = model.model_json_schema()
    if others:
        schemas = [schema, *(other.model_json_schema() for other in others)]
        examples = [example for schema in schemas for example in schema.pop("examples", [])]
        schema = {"anyOf": schemas, **({"examples": examples} if examples else {})}
    return {"requestBody": {"required": is_required, "content": {"application/json": {"schema": schema}}}}


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
