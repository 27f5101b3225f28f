from __future__ import annotations

import asyncio
import logging
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from callsheet.cli import cli
from callsheet.engine import Engine
from callsheet.engine.ids import new_id
from callsheet.kernel import commands
from callsheet.kernel.job import Job, NewJob, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.wire import encode
from callsheet.store.protocol import ClaimRequest
from tests import stores
from tests.cli.programs import SHOP, Program

T = TypeVar("T")


@dataclass(frozen=True)
class Shop:
    """A folder with an app, a store, and helpers that run the command line. `module` is new with each test."""

    folder: Path
    module: str
    url: str

    @property
    def app(self) -> str:
        return f"{self.module}:app"

    def cli(self, *words: str, **more: Any) -> Result:
        """Run a command in this process."""
        return CliRunner().invoke(cli, list(words), catch_exceptions=False, **more)

    def ask(self, verb: Callable[[Engine], Awaitable[T]]) -> T:
        """Ask the store."""

        async def opened() -> T:
            async with Engine.from_url(self.url) as engine:
                return await verb(engine)

        return asyncio.run(opened())

    def add(self, kind: str = "add", payload: Any = None, **fields: Any) -> str:
        """A new job's id."""
        new = NewJob(new_id(), kind, encode({"a": 1} if payload is None else payload), **fields)
        self.ask(lambda engine: engine.enqueue([new]))
        return new.job_id

    def job(self, job_id: str) -> Job:
        return self.ask(lambda engine: engine.get(job_id))

    def ended(self, *job_ids: str) -> bool:
        return all(self.job(job_id).status.terminal for job_id in job_ids)

    def running(self, job_id: str) -> bool:
        return self.job(job_id).status is Status.RUNNING

    def dead(self, **fields: Any) -> str:
        """A new dead letter's id."""
        job_id = self.add("broken", {}, max_attempts=1, **fields)

        async def fail(engine: Engine) -> None:
            (job,) = await engine.claim(ClaimRequest("w1", (fields.get("queue", "default"),)))
            await engine.settle_one(job, commands.fail(job, JobError("boom", "it [bold] broke"), rand=0.5))

        self.ask(fail)
        return job_id


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """An empty store; SQLite unless a test asks for others: `parametrize("url", ["postgres"], indirect=True)`."""
    return stores.fresh_url(getattr(request, "param", "sqlite"))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> Shop:
    module = f"shop_{uuid.uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("CALLSHEET_DATABASE_URL", url)
    asyncio.run(_migrate(url))
    return Shop(tmp_path, module, url)


async def _migrate(url: str) -> None:
    await (await stores.open_store(url)).close()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


Start = Callable[..., Program]


@pytest.fixture
def start(shop: Shop) -> Iterator[Start]:
    """Start `callsheet …` as a program in the shop's folder; keywords are environment variables."""
    programs: list[Program] = []

    def begin(*words: str, **variables: str) -> Program:
        programs.append(Program(shop.folder, *words, variables=variables))
        return programs[-1]

    yield begin
    for program in programs:
        program.clear_away()
