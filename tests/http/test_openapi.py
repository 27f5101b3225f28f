"""The OpenAPI document: the document covers the server's real behaviour."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from callsheet.engine import Engine
from callsheet.http.problems import MEDIA_TYPE, STATUSES
from callsheet.http.server import OPEN, create_app
from tests.http.live import ROUTERS, Live


def document() -> dict[str, Any]:
    return create_app(Engine.from_url("sqlite::memory:"), ROUTERS).openapi()


DOCUMENT = document()
ABOUT_ONE = {  # with what is not there they answer 404
    "get /v1/events",
    "get /v1/tasks/{name}",
    "get /v1/schedules/{name}",
    "delete /v1/schedules/{name}",
    "post /v1/schedules/{name}/pause",
    "post /v1/schedules/{name}/resume",
    "post /v1/schedules/{name}/run",
}
OPERATIONS = {
    f"{method} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for part in node.values():
            yield from refs(part)
    elif isinstance(node, list):
        for part in node:
            yield from refs(part)


def test_the_routes_are_those_of_the_contract() -> None:
    assert set(OPERATIONS) == {
        "get /healthz",
        "get /readyz",
        "get /metrics",
        "post /v1/jobs",
        "get /v1/jobs",
        "get /v1/jobs/{job_id}",
        "post /v1/jobs/{job_id}/cancel",
        "get /v1/jobs/{job_id}/events",
        "post /v1/jobs/{job_id}/events/ticket",
        "get /v1/events",
        "post /v1/events/ticket",
        "post /v1/jobs/batch",
        "get /v1/tasks",
        "get /v1/tasks/{name}",
        "get /v1/schedules",
        "get /v1/schedules/{name}",
        "put /v1/schedules/{name}",
        "delete /v1/schedules/{name}",
        "post /v1/schedules/{name}/pause",
        "post /v1/schedules/{name}/resume",
        "post /v1/schedules/{name}/run",
    }


def test_every_reference_leads_somewhere() -> None:
    results = set(refs(DOCUMENT))
    assert results
    for ref in results:
        node: Any = DOCUMENT
        for part in ref.removeprefix("#/").split("/"):
            node = node[part]
    assert "$defs" not in str(DOCUMENT)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_route_says_what_it_does_and_what_it_answers(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation["summary"]
    assert operation["description"]
    assert operation["tags"]
    assert [status for status in operation["responses"] if status.startswith("2")]
    for status, response in operation["responses"].items():
        assert response["description"], status
        if status.startswith(("4", "5")) and status != "501":
            assert list(response["content"]) == [MEDIA_TYPE]
            codes = response["description"].split(", ")
            assert {STATUSES[code] for code in codes} == {int(status)}


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name.split()[1] not in OPEN])
def test_a_route_behind_a_key_says_so_with_its_refusals(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation["security"] == [{"bearer": []}, {"apiKey": []}, {"session": []}]
    assert {"401", "403", "429", "503"} <= set(operation["responses"])
    assert ("404" in operation["responses"]) is (name in ABOUT_ONE or "{job_id}" in name)


def test_a_job_s_id_and_a_new_job_have_examples() -> None:
    body = OPERATIONS["post /v1/jobs"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["examples"][0]["task"] == "chat"
    for name, operation in OPERATIONS.items():
        for parameter in operation.get("parameters", []):
            if parameter["name"] == "job_id":
                assert parameter["schema"]["examples"], name


def test_the_limits_in_the_document_are_those_of_the_grammar() -> None:
    (header,) = [p for p in OPERATIONS["post /v1/jobs"]["parameters"] if p["in"] == "header"]
    assert re.fullmatch(header["schema"]["pattern"], "x" * 255)
    assert not re.fullmatch(header["schema"]["pattern"], "x" * 256)


async def test_the_document_is_served_without_a_key(small: Live) -> None:
    async with small.bare() as anybody:
        answer = await anybody.get("/openapi.json")
    assert answer.json()["paths"].keys() == DOCUMENT["paths"].keys()
    assert answer.json()["components"]["securitySchemes"].keys() == {"bearer", "apiKey", "session"}
