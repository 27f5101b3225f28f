"""`Pipeline`: a sequence of tasks. Stages run in the order of their declarations.

    episode = Pipeline(app, "episode", key="episode_id")

    @episode.stage
    async def fetch(ctx: Context, episode_id: str, url: str) -> dict[str, str]:
        return {"path": await download(url)}

    @episode.stage(queue="gpu")
    async def transcribe(ctx: Context, episode_id: str, path: str) -> dict[str, str]: ...

    await episode.start(episode_id="42", url="https://…")

The transaction that completes one stage creates the job of the next stage: no crash can lose or double that job. Its
arguments are the fields of the previous payload and result that match its parameters. For one key value there is one
active job of each stage, however many starts are requested.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from callsheet.kernel.errors import InvalidTask
from callsheet.kernel.job import NewJob

from .context import Context


class MakesJobs(Protocol):
    """The part of a `Task` that pipelines need: this layer lies below `Task`."""

    name: str

    def new_job(self, *args: Any, **kwargs: Any) -> NewJob:
        """Return a checked job of this task without enqueueing it."""
        ...


class TakesTasks(Protocol):
    """The part of `Callsheet` that pipelines and the contracts' tasks need; they cannot import that higher layer."""

    @property
    def task(self) -> Any:
        """The app's task decorator."""
        ...

    @property
    def enqueue(self) -> Any:
        """The app's `enqueue` method."""
        ...

    @property
    def database_url(self) -> str:
        """The URL of the app's job store."""
        ...

    @property
    def objects_url(self) -> str:
        """The URL of the app's object store, or ''."""
        ...


class Stage(NamedTuple):
    """One stage: its short name, its task, and the parameters and defaults of its function."""

    name: str
    task: MakesJobs
    takes: tuple[str, ...]
    defaults: Mapping[str, Any]


class Pipeline:
    """Stages in order. The parameter named `key` identifies a run; `contract` and `options` apply to all stages."""

    def __init__(self, app: TakesTasks, name: str, *, key: str, contract: str = "", **options: Any) -> None:
        self.name = name
        self.key = key
        self.stages: list[Stage] = []
        self._app = app
        self._contract = contract
        self._options = options

    def stage(self, function: Callable[..., Any] | None = None, /, *, name: str = "", **options: Any) -> Any:
        """Declare the next stage; options are those of `@app.task`. Its task is called `pipeline.stage`."""
        if function is None:
            return lambda later: self._declare(later, name, options)
        return self._declare(function, name, options)

    def after(self, name: str) -> Stage | None:
        """Return the stage after the named stage; None after the last."""
        names = [stage.name for stage in self.stages]
        place = names.index(name) + 1
        return self.stages[place] if place < len(names) else None

    async def start(self, at: str = "", /, *, requester_id: str = "", **payload: Any) -> Any:
        """Enqueue the first stage's job, or stage `at`'s; return a handle to that job, or to an already active one."""
        (handle,) = await self._app.enqueue([self.new_job(at, payload, requester_id)])
        return handle

    def new_job(self, at: str, payload: Mapping[str, Any], requester_id: str = "") -> NewJob:
        """Return a checked job of the first stage, or of stage `at`, without enqueueing it."""
        matches = [stage for stage in self.stages if stage.name == at] if at else self.stages[:1]
        if not matches:
            raise InvalidTask(
                f"pipeline {self.name} has no stage {at!r}; it has {', '.join(s.name for s in self.stages)}"
            )
        return self._job(matches[0], payload)._replace(requester_id=requester_id)

    def _declare(self, function: Callable[..., Any], name: str, options: Mapping[str, Any]) -> Any:
        name = name or function.__name__
        parameters = inspect.signature(function).parameters
        takes = tuple(parameters)[1:]
        if next(iter(parameters), "") != "ctx" or self.key not in takes or not inspect.iscoroutinefunction(function):
            raise InvalidTask(f"stage {name}: a stage is an async function of ctx, {self.key} and what else it needs")
        if any(stage.name == name for stage in self.stages):
            raise InvalidTask(f"pipeline {self.name} has a stage {name!r} already")

        @functools.wraps(function)
        async def run(ctx: Context, **payload: Any) -> Any:
            result = await function(ctx, **payload)
            self._hand_on(ctx, name, payload, result)
            return result

        own = {"contract": self._contract} if self._contract else {}
        task = self._app.task(name=f"{self.name}.{name}", **{**own, **self._options, **options})(run)
        empty = inspect.Parameter.empty
        defaults = {p.name: p.default for p in parameters.values() if p.default is not empty}
        self.stages.append(Stage(name, task, takes, defaults))
        return task

    def _hand_on(self, ctx: Context, name: str, payload: Mapping[str, Any], result: Any) -> None:
        following = self.after(name)
        if following is not None:
            more = result if isinstance(result, Mapping) else {}
            ctx.enqueue(_ReadyTask(self._job(following, {**payload, **more})))

    def _job(self, stage: Stage, values: Mapping[str, Any]) -> NewJob:
        arguments = {**stage.defaults, **values}
        payload = {name: arguments[name] for name in stage.takes if name in arguments}
        new = stage.task.new_job(**payload)
        unique_key = f"{self.name}:{payload[self.key]}:{stage.name}" if self.key in payload else None
        return new._replace(contract=self._contract or new.contract, unique_key=unique_key)


class _ReadyTask(NamedTuple):
    """Wraps a finished `NewJob` for `ctx.enqueue`, which expects a task."""

    new: NewJob

    def new_job(self) -> NewJob:
        """Return the wrapped job."""
        return self.new
