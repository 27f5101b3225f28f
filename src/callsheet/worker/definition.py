"""A declared task: the user's function, its options, and its signature as a strict schema.

Enqueueing and running both check payloads against the signature. Values are never cast: a value that JSON would
change is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from callsheet.kernel.errors import InvalidPayload, InvalidTask
from callsheet.kernel.job import Json, NewJob

from .context import Context

if TYPE_CHECKING:
    from .schema import Schema

Executor = Literal["async", "thread", "process"]


@dataclass(frozen=True, eq=False)
class Definition:
    """One task. `retry` is the text of a policy; `timeout_s` limits one attempt.

    `contract`: only jobs of this contract run the function, and the task's own jobs carry this contract; '' allows any.

    `simple`: any job may run the function, on the event loop, without a context or a timeout: no check, setup or
    cleanup is needed.
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
    arguments: Callable[[Json], dict[str, Any]] = field(init=False)
    """Returns the arguments in a payload; raises InvalidPayload."""

    def __post_init__(self) -> None:
        names = list(inspect.signature(self.function).parameters)
        hints = _hints(self.function)
        first = names[0] if names else ""
        object.__setattr__(self, "takes_context", first == "ctx" or hints.get(first) is Context)
        simple = self.executor == "async" and self.timeout_s is None and not self.takes_context and not self.contract
        object.__setattr__(self, "simple", simple)
        if self.executor != "async" and inspect.iscoroutinefunction(self.function):
            raise InvalidTask(f"task {self.name}: executor={self.executor!r} needs a plain function, not an async one")
        object.__setattr__(self, "arguments", self._schema.read)  # InvalidTask if the signature cannot be a schema

    def new_job(self, job_id: str, payload: Json) -> NewJob:
        """Return a new job with the task's options."""
        return tuple.__new__(NewJob, (job_id, self.name, payload, *self._job_options))

    @cached_property
    def _job_options(self) -> tuple[Any, ...]:
        new = NewJob("", self.name, "", self.queue, self.priority, max_attempts=self.max_attempts, retry=self.retry)
        return new._replace(ttl_s=self.ttl_s, contract=self.contract or new.contract)[3:]

    def payload(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Json:
        """Return the arguments of one call as JSON; raises InvalidPayload."""
        if args:
            kwargs = self._bind(args, kwargs)
        return self._schema.write(kwargs)

    def write_result(self, value: Any) -> Json:
        """Return the function's result as JSON; raises NotJson or PayloadTooLarge."""
        return "null" if value is None else self._schema.write_result(value)

    def read_result(self, text: Json) -> Any:
        """Return a stored result in the function's annotated return type."""
        return self._schema.read_result(text)

    def json_schemas(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the JSON schemas of the arguments and of the result; None for what has none."""
        return self._schema.json_schemas()

    @cached_property
    def _signature(self) -> inspect.Signature:
        signature = inspect.signature(self.function)
        parameters = list(signature.parameters.values())[1 if self.takes_context else 0 :]
        return signature.replace(parameters=parameters)

    @cached_property
    def _schema(self) -> Schema:
        from .schema import Schema  # noqa: PLC0415 - pydantic, a quarter of an app's import

        return Schema(self.name, self._signature.parameters, _hints(self.function))

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
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
