from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from callsheet import asgi
from callsheet.cli.errors import WrongInput
from callsheet.engine import Engine
from callsheet.http.keys import ApiKeys
from callsheet.outbox import DeliveryOptions
from callsheet.vault.keys import first_keys
from tests.cli.conftest import Shop, Start
from tests.cli.programs import eventually
from tests.server_process import free_port


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def client(port: int) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        yield client


def keyed(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def test_serve_takes_the_key_of_its_environment_and_ends_with_open_streams(
    start: Start, shop: Shop, port: int, client: httpx2.Client
) -> None:
    server = start("serve", "--port", str(port), CALLSHEET_API_KEY="the-admins-own-key", JOB_TTL_S="99")
    server.hear(f"at http://127.0.0.1:{port}")
    eventually(lambda: _answers(client))
    assert client.get("/v1/jobs").status_code == 401
    answer = client.post("/v1/jobs", json={"task": "chat", "payload": {}}, headers=keyed("the-admins-own-key"))
    assert (answer.status_code, answer.json()["ttl_s"]) == (202, 99)
    path = answer.json()["links"]["events"]
    with client.stream("GET", path, headers=keyed("the-admins-own-key")) as stream:
        next(stream.iter_lines())
        server.signal()
        assert server.end() == 0
    assert not any("the-admins-own-key" in line for line in (*server.said, *server.printed))


def test_serve_tells_when_nobody_could_get_in(start: Start, port: int) -> None:
    server = start("serve", "--port", str(port))
    server.hear("callsheet keys create")


def test_up_makes_a_key_runs_tasks_and_drains(start: Start, shop: Shop, port: int, client: httpx2.Client) -> None:
    up = start("up", shop.app, "--port", str(port))
    up.hear(f"studio http://127.0.0.1:{port}/studio, files in ")
    up.hear("serves")
    (key,) = eventually(lambda: re.findall(r"cs_live_\w+", "\n".join(up.printed)))
    eventually(lambda: _answers(client))
    job_id = shop.add("add", {"a": 20, "b": 22})
    eventually(lambda: client.get(f"/v1/jobs/{job_id}", headers=keyed(key)).json()["status"] == "done")
    assert client.get(f"/v1/jobs/{job_id}", headers=keyed(key)).json()["result"] == 42
    gate = shop.folder / "gate"
    waiting = shop.add("gate", {"path": str(gate)})
    eventually(lambda: shop.running(waiting))
    up.signal(signal.SIGINT)
    up.hear("draining")
    gate.touch()
    assert up.end() == 0
    assert shop.ended(waiting)
    again = start("up", shop.app, "--port", str(port))
    again.hear("serves")
    assert not again.printed  # the key was shown once


def test_auth_is_off_only_on_this_machine(shop: Shop) -> None:
    refusal = shop.cli("serve", "--auth", "off", "--host", "0.0.0.0")
    assert refusal.exit_code == 2
    assert "for this machine alone" in refusal.stderr


def test_a_batch_of_webhooks_is_a_setting_and_has_at_most_25(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = shop.cli("serve", env={"CALLSHEET_WEBHOOK_BATCH": "26"})
    assert refusal.exit_code == 2
    assert "at most 25" in refusal.stderr
    options_seen: list[DeliveryOptions] = []

    def noted(_: Engine, __: object, options: DeliveryOptions) -> None:
        options_seen.append(options)
        raise WrongInput("that is all")

    monkeypatch.setattr(asgi, "Deliveries", noted)
    shop.cli("serve", env={"CALLSHEET_WEBHOOK_BATCH": "25", "CALLSHEET_WEBHOOK_CONCURRENCY": "7"})
    assert [(options.batch, options.held, options.concurrency) for options in options_seen] == [(25, 25, 7)]


def test_a_port_in_use_is_told(start: Start, port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        server = start("serve", "--port", str(port))
        assert server.end() == 1
        up = start("up", "--port", str(port))
        assert up.end() == 1
    for program in (server, up):
        assert any("cannot listen" in line and "take another one with --port" in line for line in program.said)
    assert not up.printed, "a key is shown once, so not where nothing is served"


def test_keys_are_made_listed_and_revoked(shop: Shop) -> None:
    output = json.loads(shop.cli("keys", "create", "anna", "--requester", "acme", "--expires", "90d", "--json").stdout)
    listing = shop.cli("keys", "list").stdout
    assert "anna" in listing
    assert "acme" in listing
    assert output["key"] not in listing

    def of(text: str) -> object:
        async def ask(engine: Engine) -> object:
            return await ApiKeys(engine.store).principal(text)

        return shop.ask(ask)

    assert of(output["key"]) is not None
    assert shop.cli("keys", "revoke", output["key_id"]).exit_code == 0
    assert of(output["key"]) is None
    assert "revoked" in shop.cli("keys", "list").stdout
    assert shop.cli("keys", "revoke", "nobody").exit_code == 1
    assert "no scope" not in shop.cli("keys", "create", "x", "--scope", "admin").stdout


def _answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False


OUTPUTS = [{"key": "a.mp3", "format": "mp3"}]
STORAGE = {"endpoint": "http://127.0.0.1:8080"}
KEYS_OF = {"access_key_id": "a", "secret_access_key": "b"}
NAMED: dict[str, dict[str, Any]] = {
    "source_storage.endpoint": {
        "source": "s3://bucket/a",
        "source_storage": STORAGE,
        "credentials": {"source": KEYS_OF},
    },
    "output_storage.endpoint": {
        "output": "s3://bucket/a",
        "output_storage": STORAGE,
        "credentials": {"output": KEYS_OF},
    },
    "source": {"source": "http://127.0.0.1:8080/a?sig=1"},
    "status_webhook_url": {"status_webhook_url": "http://127.0.0.1:8080/hook"},
}
WEBHOOKS = {"CALLSHEET_WEBHOOK_HTTP": "1", "CALLSHEET_WEBHOOK_NETWORKS": "127.0.0.0/8"}
STORAGES = {"CALLSHEET_STORAGE_HTTP": "1", "CALLSHEET_STORAGE_NETWORKS": "127.0.0.0/8"}
ELSEWHERE = {"CALLSHEET_STORAGE_NETWORKS": "10.1.0.0/16"}


@pytest.mark.parametrize(
    ("opened", "refused"),
    [
        ({}, set(NAMED)),
        (STORAGES, {"status_webhook_url"}),
        (WEBHOOKS, set()),
        ({**WEBHOOKS, **ELSEWHERE}, set(NAMED) - {"status_webhook_url"}),
    ],
    ids=["none", "storages", "webhooks alone", "webhooks and others"],
)
def test_storages_and_sources_have_rules_of_their_own(
    start: Start, port: int, client: httpx2.Client, opened: dict[str, str], refused: set[str]
) -> None:
    """Given none, they have those of webhooks, as ever; given one, nothing that is opened for webhooks counts."""
    key, keys = "the-admins-own-key", first_keys().text()
    server = start("serve", "--port", str(port), CALLSHEET_API_KEY=key, CALLSHEET_KEYS=keys, **opened)
    server.hear(f"at http://127.0.0.1:{port}")
    eventually(lambda: _answers(client))
    assert client.post("/v1/webhooks/secret", headers=keyed(key)).is_success
    for field, more in NAMED.items():
        source = {} if "source" in more else {"source": "https://example.org/a?sig=1"}
        answer = client.post("/transcode", json={"outputs": OUTPUTS, **source, **more}, headers=keyed(key))
        if field not in refused:
            assert answer.status_code == 202, answer.text
            continue
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_target"), answer.text
        assert [fault["where"] for fault in answer.json()["errors"]] == [field]
        assert answer.json()["detail"].startswith(f"{field}: ")
        assert ("--storage-http" in answer.text) is (field != "status_webhook_url")


def test_rules_of_storages_that_cannot_be_read_are_told_at_the_start(start: Start, port: int) -> None:
    for setting in ({"CALLSHEET_STORAGE_NETWORKS": "ten"}, {"CALLSHEET_STORAGE_PORTS": "http"}):
        server = start("serve", "--port", str(port), **setting)
        assert server.end() == 2, server.said
