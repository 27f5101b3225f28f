"""`Task`: a declared function. A plain call runs the function directly; `enqueue` creates a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast

from callsheet.engine.ids import new_ids

from .options import JOB_OPTIONS, JobOptions, job_of

if TYPE_CHECKING:
    from callsheet.kernel.job import NewJob
    from callsheet.worker.definition import Definition

    from .application import Callsheet
    from .handle import JobHandle

P = ParamSpec("P")
R = TypeVar("R")
NO_OPTIONS: JobOptions = {}


class Task(Generic[P, R]):
    """A declared task. `enqueue` has the parameters of the function, without the context."""

    def __init__(self, app: Callsheet, definition: Definition, options: JobOptions = NO_OPTIONS) -> None:
        self.definition = definition
        self.name = definition.name
        self.function: Callable[..., R] = definition.function
        self._app = app
        self._options = options
        self.__doc__ = definition.function.__doc__
        self.__wrapped__ = definition.function

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Call the function directly, without a job."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def options(self, **options: Unpack[JobOptions]) -> Task[P, R]:
        """Return the task with options for its jobs: `await resize.options(delay="10m").enqueue(url=…)`."""
        return Task(self._app, self.definition, cast("JobOptions", {**self._options, **options}))

    @property
    def app(self) -> Callsheet:
        """The app of this task."""
        return self._app

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Create a job and return its handle after commit. Arguments may include options, such as `delay="10m"`."""
        (handle,) = await self._app.enqueue([self.new_job(*args, **kwargs)])
        return handle

    async def enqueue_many(self, calls: Sequence[Mapping[str, Any]]) -> list[JobHandle[R]]:
        """Create a job for each set of arguments, all or none, in one round trip."""
        definition, options, payload = self.definition, self._for_requester(self._options), self.definition.payload
        ids = new_ids(len(calls))
        jobs = [job_of(definition, payload((), call), options, i) for i, call in zip(ids, calls, strict=True)]
        return await self._app.enqueue(jobs)

    def new_job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return a checked job without enqueueing it, for `app.enqueue`, `app.within` and `ctx.enqueue`."""
        options = self._options
        if names := JOB_OPTIONS & kwargs.keys():
            options = cast("JobOptions", {**options, **{name: kwargs.pop(name) for name in names}})
        return job_of(self.definition, self.definition.payload(args, kwargs), self._for_requester(options))

    def _for_requester(self, options: JobOptions) -> JobOptions:
        requester_id = self._app.requester_id
        return cast("JobOptions", {"requester_id": requester_id, **options}) if requester_id else options
