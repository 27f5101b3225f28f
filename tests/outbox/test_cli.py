from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from callsheet.engine import Engine
from callsheet.outbox.endpoints import own_id
from callsheet.receiver import Receiver
from callsheet.vault.keys import first_keys
from tests.cli.conftest import Shop, Start, _logging_as_it_was, shop, start, url
from tests.outbox.kit import add_events, event
from tests.server_process import free_port

__all__ = ["_logging_as_it_was", "shop", "start", "url"]  # the fixtures of the command line's own tests


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "keys.txt"
    path.write_text(first_keys().text())
    path.chmod(0o600)
    monkeypatch.setenv("CALLSHEET_KEYS_FILE", str(path))
    return str(path)


def test_endpoints_are_made_rotated_disabled_and_enabled(shop: Shop, keys: str) -> None:
    output = shop.cli("webhooks", "create", "https://hooks.example.org/x", "--requester", "acme")
    assert output.stdout.startswith("whsec_")
    (shown,) = json.loads(shop.cli("webhooks", "endpoints", "--json").stdout)
    assert output.stdout.strip() not in json.dumps(shown)
    name = shown["endpoint_id"]
    assert name in shop.cli("webhooks", "endpoints").stdout
    rotation = json.loads(shop.cli("webhooks", "rotate", name, "--json", "--overlap", "0").stdout)
    assert len(rotation["secrets"]) == 1
    assert "disabled" in shop.cli("webhooks", "disable", name).stdout
    assert "disabled (asked)" in shop.cli("webhooks", "endpoints").stdout
    assert "0 events" in shop.cli("webhooks", "enable", name).stdout


def test_deliveries_are_listed_shown_and_sent_again(shop: Shop) -> None:
    assert "no such deliveries" in shop.cli("webhooks", "list").stdout
    (event_id,) = shop.ask(lambda engine: add_events(engine, "https://hooks.example.org/x"))
    assert event_id in shop.cli("webhooks", "list").stdout
    assert json.loads(shop.cli("webhooks", "list", "--json", "--status", "dead_letter").stdout) == []
    assert event_id in shop.cli("webhooks", "show", event_id).stdout
    assert json.loads(shop.cli("webhooks", "show", event_id, "--json").stdout)["status"] == "pending"
    assert "pending" in shop.cli("webhooks", "replay", event_id).stdout
    assert "0 go out again" in shop.cli("webhooks", "replay", "--all", "--yes").stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("show", "no-such"), 1, "no delivery no-such"),
        (("replay",), 2, "--all"),
        (("replay", "x", "--all"), 2, "--all"),
        (("create", "http://example.org/"), 2, "https://"),
        (("create", "https://example.org/"), 2, "CALLSHEET_KEYS_FILE"),
        (("create", "https://10.0.0.1/", "--webhook-networks", "10.0.0.0/99"), 2, "10.0.0.0/8"),
        (("create", "https://example.org/", "--webhook-ports", "http"), 2, "no port"),
        (("rotate", "whe_x"), 1, "no endpoint"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(shop: Shop, words: tuple[str, ...], code: int, message: str) -> None:
    result = shop.cli("webhooks", *words)
    assert (result.exit_code, message in result.stderr, result.stderr.count("\n")) == (code, True, 1), result.stderr


def test_a_server_delivers(shop: Shop, start: Start, keys: str) -> None:
    """The whole way: an endpoint by the command line, an event in the store, a server that sends it, a receiver."""
    requests: list[tuple[dict[str, str], bytes]] = []
    has_arrived = threading.Event()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            requests.append((dict(self.headers), body))
            self.send_response(204)
            self.end_headers()
            has_arrived.set()

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = f"http://127.0.0.1:{server.server_port}/hook"
    flags = ("--webhook-http", "--webhook-networks", "127.0.0.0/8", "--webhook-ports", str(server.server_port))
    output = shop.cli("webhooks", "create", where, "--requester", "acme", "--json", *flags)
    endpoint = json.loads(output.stdout)
    program = start(
        "serve",
        "--port",
        str(free_port()),
        *flags,
        CALLSHEET_KEYS_FILE=keys,
        CALLSHEET_API_KEY="key-of-the-outbox-tests",
    )
    program.hear("at http://127.0.0.1")
    (event_id,) = shop.ask(lambda engine: add_events(engine, endpoint["endpoint_id"]))
    assert has_arrived.wait(60)
    headers, body = requests[0]
    assert Receiver([endpoint["secret"]]).verify(headers, body).event_id == event_id

    async def delivered(engine: Engine) -> str:
        async with asyncio.timeout(60):
            while (status := (await event(engine, event_id)).status.value) != "delivered":
                await asyncio.sleep(0.02)
        return status

    assert shop.ask(delivered) == "delivered"
    program.signal()
    assert program.end() == 0
    assert not any(endpoint["secret"][6:] in line for line in (*program.said, *program.printed))
    server.shutdown()
    server.server_close()


def test_a_requesters_own_secrets_have_a_name_that_tells_nothing() -> None:
    assert own_id("acme") != own_id("")
    assert "acme" not in own_id("acme")
