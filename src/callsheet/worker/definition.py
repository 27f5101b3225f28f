"""A task as it is declared: the user's function, its options, and its signature as a strict schema.

Payloads are checked against the signature when a job is enqueued and again when it runs. Nothing is cast: a value that
would not come out of JSON as it went in is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NotRequired, Required, get_type_hints

import pydantic
from pydantic import ConfigDict, JsonValue, TypeAdapter
from pydantic_core import PydanticSerializationError, to_json
from typing_extensions import TypedDict

from callsheet.kernel.errors import InvalidPayload, InvalidTask, NotJson
from callsheet.kernel.job import Json, NewJob
from callsheet.kernel.wire import check_json

from .context import Context

Executor = Literal["async", "thread", "process"]
RESULT_LIMIT_BYTES = 1024 * 1024
SCALARS = frozenset({str, int, float, bool, type(None)})
CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, eq=False)
class Definition:
    """One task. `retry` is the text of a policy; `timeout_s` limits one attempt.

    `contract`: only jobs of this contract run the function, and jobs that are made by its task have it; '' is any.

    `simple`: nothing has to be set up before its function is called, nor cleared away after.
    """

    name: str
    function: Callable[..., Any]
    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    timeout_s: float | None = None
    retry: str = ""
    ttl_s: int | None = None
    executor: Executor = "async"
    contract: str = ""
    takes_context: bool = field(init=False)
    simple: bool = field(init=False)

    def __post_init__(self) -> None:
        names = list(inspect.signature(self.function).parameters)
        hints = _hints(self.function)
        first = names[0] if names else ""
        object.__setattr__(self, "takes_context", first == "ctx" or hints.get(first) is Context)
        simple = self.executor == "async" and self.timeout_s is None and not self.takes_context
        object.__setattr__(self, "simple", simple)
        if self.executor != "async" and inspect.iscoroutinefunction(self.function):
            raise InvalidTask(f"task {self.name}: executor={self.executor!r} needs a plain function, not an async one")
        _ = self._adapter  # a signature that cannot be a schema is told at declaration

    def new_job(self, job_id: str, payload: Json) -> NewJob:
        """A job with the task's own options."""
        return tuple.__new__(NewJob, (job_id, self.name, payload, *self._shared))

    @cached_property
    def _shared(self) -> tuple[Any, ...]:
        new = NewJob("", self.name, "", self.queue, self.priority, max_attempts=self.max_attempts, retry=self.retry)
        return new._replace(ttl_s=self.ttl_s, contract=self.contract or new.contract)[3:]

    def payload(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Json:
        """The arguments of one call as JSON; raises InvalidPayload."""
        if args:
            kwargs = self._bound(args, kwargs)
        try:
            values = self._validate(kwargs)
            text: bytes = self._serialize(values)
            if not self._closed and self._validate_json(text) != values:
                raise InvalidPayload(
                    f"{self.name}: an argument would change on its way through JSON; annotate its type"
                )
        except pydantic.ValidationError as error:
            raise InvalidPayload(_told(self.name, error)) from None
        except PydanticSerializationError as error:
            raise InvalidPayload(f"{self.name}: the arguments cannot be written as JSON ({error})") from None
        return text.decode()

    def arguments(self, payload: Json) -> dict[str, Any]:
        """The arguments that a payload stands for; raises InvalidPayload."""
        try:
            return self._validate_json(payload)  # type: ignore[no-any-return]
        except pydantic.ValidationError as error:
            raise InvalidPayload(_told(self.name, error)) from None

    def write_result(self, value: Any) -> Json:
        """What the function returned as JSON; raises NotJson or PayloadTooLarge."""
        if value is None:
            return "null"
        try:
            text = to_json(value, inf_nan_mode="constants").decode()
        except (PydanticSerializationError, UnicodeError, RecursionError) as error:
            kind = type(value).__name__
            raise NotJson(f"{self.name} returned a {kind} that cannot be written as JSON ({error})") from None
        check_json(text, limit_bytes=RESULT_LIMIT_BYTES)
        return text

    def read_result(self, text: Json) -> Any:
        """A stored result as the type that the function says it returns."""
        return self._result.validate_json(text)

    @cached_property
    def _signature(self) -> inspect.Signature:
        signature = inspect.signature(self.function)
        parameters = list(signature.parameters.values())[1 if self.takes_context else 0 :]
        return signature.replace(parameters=parameters)

    @cached_property
    def _annotations(self) -> dict[str, Any]:
        hints = _hints(self.function)
        found = {}
        for name, parameter in self._signature.parameters.items():
            if parameter.kind not in PLAIN:
                raise InvalidTask(f"task {self.name}: {parameter} cannot be a job's argument; name each parameter")
            found[name] = JsonValue if hints.get(name, Any) is Any else hints[name]
        return found

    @cached_property
    def _closed(self) -> bool:
        """True when strict types alone make sure that values come back from JSON as they were."""
        return all(annotation in SCALARS for annotation in self._annotations.values())

    @cached_property
    def _adapter(self) -> TypeAdapter[dict[str, Any]]:
        empty = inspect.Parameter.empty
        parameters = self._signature.parameters
        fields = {
            name: Required[kind] if parameters[name].default is empty else NotRequired[kind]
            for name, kind in self._annotations.items()
        }
        make: Any = TypedDict  # made at run time, which a type checker cannot follow
        schema = make(self.name, fields)
        schema.__pydantic_config__ = CONFIG
        try:
            return TypeAdapter(schema)
        except pydantic.errors.PydanticUserError as error:
            raise InvalidTask(f"task {self.name}: its parameters cannot be checked ({error.message})") from None

    # The adapter's inner parts: they are called for every job, so its wrappers count.

    @cached_property
    def _validate(self) -> Callable[[Any], Any]:
        return self._adapter.validator.validate_python

    @cached_property
    def _validate_json(self) -> Callable[[str | bytes], Any]:
        return self._adapter.validator.validate_json

    @cached_property
    def _serialize(self) -> Callable[[Any], bytes]:
        return self._adapter.serializer.to_json

    @cached_property
    def _result(self) -> TypeAdapter[Any]:
        kind = _hints(self.function).get("return", Any)
        try:
            return TypeAdapter(kind)
        except pydantic.errors.PydanticUserError:
            return TypeAdapter(Any)

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidPayload(f"{self.name}{self._signature}: {error}") from None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        name = getattr(function, "__name__", function)
        raise InvalidTask(f"task {name}: an annotation cannot be read ({error}); import it at run time") from error


def _told(name: str, error: pydantic.ValidationError) -> str:
    """What is wrong, by parameter, without the values: they may be secrets."""
    faults = [f"{'.'.join(map(str, f['loc'])) or 'payload'}: {f['msg']}" for f in error.errors(include_url=False)]
    return f"{name}: {'; '.join(faults[:5])}"
