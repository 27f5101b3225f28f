"""Schemathesis asks everything that the OpenAPI document allows, and much that it does not, of a real server.

Endless streams are rotated at once, so every route is tested.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from callsheet.http import sse
from tests import stores
from tests.http.live import ADMIN, serving
from tests.http.test_openapi import document

ASKS_THE_REGISTER = {"/v1/jobs", "/v1/jobs/batch", "/v1/schedules/{name}"}  # whether a task is known is in no schema
EXAMPLES = 25
KEY = {"Authorization": f"Bearer {ADMIN}"}
CONFIG = SchemathesisConfig(
    seed=20260101,
    projects=ProjectsConfig(
        default=ProjectConfig(
            generation=GenerationConfig(max_examples=EXAMPLES, deterministic=True), request_timeout=10
        )
    ),
)
schema = schemathesis.openapi.from_dict(document(), config=CONFIG)


class Target(NamedTuple):
    """A server in its own thread, with a waiting, a running and an ended job."""

    url: str
    jobs: list[str]


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    ready, stop, has_found = threading.Event(), threading.Event(), []

    async def serve() -> None:
        async with serving(stores.fresh_url("sqlite")) as live:
            running_job = await live.running()
            await live.done(running_job, '{"text":"hello"}')
            running = await live.running()
            has_found.append(Target(live.url, [running_job.job_id, running.job_id, await live.job()]))
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.02)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "ROTATE_S", (0.0, 0.0))
        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        assert ready.wait(30)
        yield has_found[0]
        stop.set()
        thread.join(30)


@schema.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_one_that_the_document_names(case: schemathesis.Case, target: Target) -> None:
    excluded: list[Any] = [positive_data_acceptance] if case.path in ASKS_THE_REGISTER else []
    case.call_and_validate(base_url=target.url, headers=KEY, excluded_checks=excluded)


@schema.include(path_regex="job_id").parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_so_is_every_answer_about_a_job_that_there_is(case: schemathesis.Case, target: Target) -> None:
    for job_id in target.jobs:
        case.path_parameters = {"job_id": job_id}
        case.call_and_validate(base_url=target.url, headers=KEY)
