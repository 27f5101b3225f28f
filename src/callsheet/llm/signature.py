"""A tool's signature as a strict schema: no value is cast, and unknown argument names are refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NotRequired, Required, get_type_hints

import pydantic
from pydantic import ConfigDict, JsonValue, TypeAdapter
from typing_extensions import TypedDict

from callsheet.kernel.errors import InvalidPayload, InvalidTask

CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def schema_of(name: str, function: Callable[..., Any]) -> TypeAdapter[dict[str, Any]]:
    """Return the schema of a tool's arguments. Raises InvalidTask if the signature has no JSON form."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidTask(f"tool {name}: an annotation cannot be read ({error}); import it at run time") from error
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in PLAIN:
            raise InvalidTask(f"tool {name}: {parameter} cannot be an argument; name each parameter")
        kind = JsonValue if hints.get(parameter.name, Any) is Any else hints[parameter.name]
        fields[parameter.name] = Required[kind] if parameter.default is parameter.empty else NotRequired[kind]
    make: Any = TypedDict  # made at run time, which a type checker cannot follow
    schema = make(name, fields)
    schema.__pydantic_config__ = CONFIG
    try:
        return TypeAdapter(schema)
    except pydantic.errors.PydanticUserError as error:
        raise InvalidTask(f"tool {name}: its parameters cannot be checked ({error.message})") from None


def check(name: str, schema: TypeAdapter[dict[str, Any]], arguments: bytes) -> dict[str, Any]:
    """Parse and validate arguments in JSON. Raises InvalidPayload, whose message omits the values."""
    try:
        return schema.validate_json(arguments)
    except pydantic.ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise InvalidPayload(f"tool {name}: {'; '.join(faults[:5])}") from None
