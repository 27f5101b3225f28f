"""A task's signature as a strict schema: its payloads and its results, from Python to JSON and back, by pydantic."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NotRequired, Required

import pydantic
from pydantic import ConfigDict, JsonValue, TypeAdapter
from pydantic_core import PydanticSerializationError, to_json
from typing_extensions import TypedDict

from callsheet.kernel.errors import InvalidPayload, InvalidTask, NotJson
from callsheet.kernel.job import Json
from callsheet.kernel.wire import check_json

RESULT_LIMIT_BYTES = 1024 * 1024
SCALARS = frozenset({str, int, float, bool, type(None)})
CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Schema:
    """The schema of one task. The adapter's inner parts are called for every job, so its wrappers count."""

    def __init__(self, name: str, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]) -> None:
        self._name = name
        self._result_type = hints.get("return", Any)
        annotations = {parameter.name: self._annotation(parameter, hints) for parameter in parameters.values()}
        # True when strict types alone make sure that values come back from JSON as they were
        self._is_closed = all(annotation in SCALARS for annotation in annotations.values())
        adapter = self._arguments_adapter = self._adapter(parameters, annotations)
        self._validate = adapter.validator.validate_python
        self._validate_json = adapter.validator.validate_json
        self._serialize = adapter.serializer.to_json

    def write(self, arguments: Mapping[str, Any]) -> Json:
        """Return the arguments of one call as JSON; raises InvalidPayload."""
        try:
            values = self._validate(arguments)
            text: bytes = self._serialize(values)
            if not self._is_closed and self._validate_json(text) != values:
                raise InvalidPayload(
                    f"{self._name}: an argument would change on its way through JSON; annotate its type"
                )
        except pydantic.ValidationError as error:
            raise InvalidPayload(_describe(self._name, error)) from None
        except PydanticSerializationError as error:
            raise InvalidPayload(f"{self._name}: the arguments cannot be written as JSON ({error})") from None
        return text.decode()

    def read(self, payload: Json) -> dict[str, Any]:
        """Return the arguments that a payload stands for; raises InvalidPayload."""
        try:
            return self._validate_json(payload)  # type: ignore[no-any-return]
        except pydantic.ValidationError as error:
            raise InvalidPayload(_describe(self._name, error)) from None

    def write_result(self, value: Any) -> Json:
        """Return the function's result as JSON; raises NotJson or PayloadTooLarge."""
        try:
            text = to_json(value, inf_nan_mode="constants").decode()
        except (PydanticSerializationError, UnicodeError, RecursionError) as error:
            kind = type(value).__name__
            raise NotJson(f"{self._name} returned a {kind} that cannot be written as JSON ({error})") from None
        check_json(text, limit_bytes=RESULT_LIMIT_BYTES)
        return text

    def read_result(self, text: Json) -> Any:
        """Return a stored result in the function's annotated return type."""
        return self._result.validate_json(text)

    def json_schemas(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the JSON schemas of the arguments and of the result; None for a type that JSON Schema cannot say."""
        return _json_schema(self._arguments_adapter), _json_schema(self._result)

    def _annotation(self, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
        if parameter.kind not in PLAIN:
            raise InvalidTask(f"task {self._name}: {parameter} cannot be a job's argument; name each parameter")
        hint = hints.get(parameter.name, Any)
        return JsonValue if hint is Any else hint

    def _adapter(
        self, parameters: Mapping[str, inspect.Parameter], annotations: Mapping[str, Any]
    ) -> TypeAdapter[dict[str, Any]]:
        empty = inspect.Parameter.empty
        fields = {
            name: Required[kind] if parameters[name].default is empty else NotRequired[kind]
            for name, kind in annotations.items()
        }
        make: Any = TypedDict  # made at run time, which a type checker cannot follow
        schema = make(self._name, fields)
        schema.__pydantic_config__ = CONFIG
        try:
            return TypeAdapter(schema)
        except pydantic.errors.PydanticUserError as error:
            raise InvalidTask(f"task {self._name}: its parameters cannot be checked ({error.message})") from None

    @cached_property
    def _result(self) -> TypeAdapter[Any]:
        try:
            return TypeAdapter(self._result_type)
        except pydantic.errors.PydanticUserError:
            return TypeAdapter(Any)


def _json_schema(adapter: TypeAdapter[Any]) -> dict[str, Any] | None:
    try:
        return adapter.json_schema()
    except (pydantic.errors.PydanticUserError, ValueError, TypeError):
        return None


def _describe(name: str, error: pydantic.ValidationError) -> str:
    """Describe validation errors by parameter, without the values, which may be secrets."""
    faults = [f"{'.'.join(map(str, f['loc'])) or 'payload'}: {f['msg']}" for f in error.errors(include_url=False)]
    return f"{name}: {'; '.join(faults[:5])}"
