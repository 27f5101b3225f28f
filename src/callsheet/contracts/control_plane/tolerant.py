"""Fields of a worker's report that are cut or replaced, never refused.

Refusing an end report would let the lease run out, and a finished job would run again. The fields that prove the lease
(`worker_id`, `job_id`, `lease_token`) or create something (`artifacts`, `follow_ups`) stay strict.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import pydantic
from pydantic import BeforeValidator

from callsheet.http.json_bodies import read
from callsheet.http.problems import Problem, of_faults
from callsheet.kernel.wire import clean

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_CODE = 100
MAX_MESSAGE = 4_000
MAX_STACK = 8_000
MAX_REASON = 1_000
DETAILS_BYTES = 100 * 1024
UNKNOWN = "unknown"
WORDS_OF_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
M = TypeVar("M", bound=pydantic.BaseModel)


def text_of(value: Any, limit: int) -> str:
    """Return any JSON value as text of at most `limit` characters that every store can keep."""
    if value is None:
        return ""
    return clean(value if isinstance(value, str) else json.dumps(value, default=str), limit)


def code_of(value: Any) -> str:
    """Return an error's code; a number becomes its digits, a missing code becomes `unknown`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return clean(str(value), MAX_CODE) if value and (is_number or isinstance(value, str)) else UNKNOWN


def boolean_of(value: Any) -> bool | None:
    """Return a boolean, also for words such as "true", "1" or "no"; None for other values."""
    return value if isinstance(value, bool) else WORDS_OF_BOOLEANS.get(str(value).lower())


def error_of(value: Any) -> dict[str, Any]:
    """Return an error as an object: another value becomes its message."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump()
    return value if isinstance(value, dict) else {"message": value}


def details_of(value: Any) -> dict[str, Any] | None:
    """Return details as a storable object; details over the size limit become the first characters of their text."""
    if value is None or value == {}:
        return None
    details = storable(value)
    text = json.dumps(details, ensure_ascii=False)
    if len(text.encode()) > DETAILS_BYTES:
        return {"cut": text[:MAX_STACK]}
    return details if isinstance(details, dict) else {"value": details}


def storable(value: Any) -> Any:
    """Return a JSON value without lone surrogates, NaN and infinities: these become U+FFFD and null."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {storable(str(name)): storable(part) for name, part in value.items()}
    return [storable(part) for part in value] if isinstance(value, list) else value


def clamp(low: int, high: int, otherwise: int | None) -> BeforeValidator:
    """Return a validator that moves a number between its limits and replaces a value that is not a number."""

    def whole(value: Any) -> int | None:
        is_number = type(value) is int or (type(value) is float and not math.isnan(value))  # an int may be too long
        return int(min(max(value, low), high)) if is_number else otherwise

    return BeforeValidator(whole)


def at_most(limit: int) -> BeforeValidator:
    """Return a validator that lowers a whole number to `limit` and leaves every other value unchanged."""
    return BeforeValidator(lambda value: limit if isinstance(value, int) and value > limit else value)


def cut_at(limit: int) -> BeforeValidator:
    """Return a validator that converts any value to text and cuts it."""
    return BeforeValidator(lambda value: text_of(value, limit))


Code = Annotated[str, BeforeValidator(code_of)]
Details = Annotated[dict[str, Any] | None, BeforeValidator(details_of)]
Maybe = Annotated[bool | None, BeforeValidator(boolean_of)]
Flag = Annotated[bool, BeforeValidator(lambda value: boolean_of(value) or False)]
AttemptId = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
IgnoredText = Annotated[str, cut_at(255)]
Result = Annotated[Any, BeforeValidator(storable)]


async def read_report(request: Request, model: type[M]) -> M:
    """Read a worker's report; raises Problem.

    The strict validator refuses whole bodies for a lone surrogate, invalid UTF-8 or deep nesting; such bodies are read
    again with Python's own JSON parser.
    """
    try:
        return await read(request, model)
    except Problem as problem:
        if problem.code not in {"validation_failed", "bad_request"}:
            raise
        body = loosely_parsed(await request.body())
        if body is None:
            raise
    report = validate(model, body)
    if isinstance(report, Problem):
        raise report
    return report


def validate(model: type[M], body: Any) -> M | Problem:
    """Return the parsed body as its model, or the Problem that describes its faults."""
    try:
        return model.model_validate(body)
    except pydantic.ValidationError as error:
        return of_faults(error.errors(include_url=False, include_input=False, include_context=False))


def loosely_parsed(body: bytes) -> Any:
    """Return a body's JSON in storable form, None if the body is not JSON."""
    try:
        return storable(json.loads(body.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None
