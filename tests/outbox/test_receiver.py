from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import json
import re
import sqlite3
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from callsheet.kernel.errors import InvalidInput
from callsheet.outbox.signing import key_of, new_secret, signed_headers
from callsheet.receiver import SQL, MemorySeen, NotVerified, Receiver, RedisSeen, Seen, SqlSeen
from tests import stores
from tools.check_types import node

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "webhooks.md").read_text("utf-8")
(BLOCK,) = re.findall(r"```json\n(\[.*?)```", GUIDE, re.DOTALL)
VECTORS: list[dict[str, Any]] = json.loads(BLOCK)
NOW = 1_800_000_000
SECRET = new_secret()
BODY = b'{"event_id": "evt_1", "status": "succeeded"}'


def signed(body: bytes = BODY, event_id: str = "evt_1", *secrets: str, at_s: int = NOW) -> dict[str, str]:
    return signed_headers([key_of(s) for s in secrets or (SECRET,)], event_id, body, attempt=2, at_s=at_s)


def receiver(*secrets: str, now: float = NOW, seen: Seen | None = None) -> Receiver:
    return Receiver(secrets or (SECRET,), seen=seen, clock=lambda: now)


def standard_webhooks(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """As the specification of Standard Webhooks has it, written for this test alone."""
    key = base64.b64decode(secret[len("whsec_") :])
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return f"v1,{expected}" in headers["webhook-signature"].split(" ")


def test_what_was_signed_is_verified() -> None:
    event = receiver().verify({name.upper(): value for name, value in signed().items()}, BODY)
    assert (event.event_id, event.attempt, event.body["status"], event.raw) == ("evt_1", 2, "succeeded", BODY)


def test_any_byte_that_is_flipped_in_any_field_is_refused() -> None:
    headers = signed()
    for name in ("signature", "timestamp", "nonce", "event-id"):
        text = headers[f"x-euterpe-{name}"]
        for place in range(len(text)):
            for bit in (1, 2, 16):
                flipped_text = text[:place] + chr(ord(text[place]) ^ bit) + text[place + 1 :]
                with pytest.raises(NotVerified):
                    receiver().verify({**headers, f"x-euterpe-{name}": flipped_text}, BODY)
    for place in range(len(BODY)):
        flipped_body = BODY[:place] + bytes([BODY[place] ^ 1]) + BODY[place + 1 :]
        with pytest.raises(NotVerified):
            receiver().verify(headers, flipped_body)
    for name in ("webhook-id", "webhook-timestamp"):
        for place in range(len(headers[name])):
            text = headers[name]
            changes = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
            assert not standard_webhooks(SECRET, {**headers, name: changes}, BODY)


@pytest.mark.parametrize("name", ["signature", "timestamp", "nonce", "event-id"])
def test_a_missing_header_is_refused(name: str) -> None:
    headers = signed()
    for worse in ("", "é", "\x00", "1" * 5_000):
        with pytest.raises(NotVerified):
            receiver().verify({**headers, f"x-euterpe-{name}": worse}, BODY)
    del headers[f"x-euterpe-{name}"]
    with pytest.raises(NotVerified):
        receiver().verify(headers, BODY)


@pytest.mark.parametrize(("off_s", "good"), [(0, True), (300, True), (-300, True), (301, False), (-301, False)])
def test_the_timestamp_is_within_five_minutes(off_s: int, good: bool) -> None:  # noqa: FBT001
    if good:
        receiver(now=NOW + off_s).verify(signed(), BODY)
    else:
        with pytest.raises(NotVerified, match="timestamp"):
            receiver(now=NOW + off_s).verify(signed(), BODY)


@pytest.mark.parametrize("kind", ["memory", "redis", "sql"])
def test_a_request_is_taken_once_and_an_event_is_worked_on_once(kind: str, tmp_path: Path) -> None:
    seen = _seen(kind, tmp_path)
    headers, mine = signed(), receiver(seen=seen)
    mine.verify(headers, BODY)
    with pytest.raises(NotVerified, match="before"):
        receiver(seen=seen).verify(headers, BODY)
    again = mine.verify(signed(), BODY)  # another attempt has another nonce
    with pytest.raises(RuntimeError), mine.once(again.event_id) as first:
        assert first
        raise RuntimeError
    with mine.once(again.event_id) as first:
        assert first
    with receiver(seen=seen).once(again.event_id) as first:
        assert not first


def _seen(kind: str, folder: Path) -> Seen:
    if kind == "memory":
        return MemorySeen(clock=lambda: NOW)
    if kind == "redis":
        return RedisSeen(redis.Redis.from_url(stores.fresh_url("redis").partition("?")[0]))
    with sqlite3.connect(folder / "seen.db") as connection:
        connection.execute(SQL)
    return SqlSeen(lambda: sqlite3.connect(folder / "seen.db"), clock=lambda: NOW)


def test_what_was_seen_is_forgotten_after_its_time(tmp_path: Path) -> None:
    now = [0.0]
    with sqlite3.connect(tmp_path / "seen.db") as connection:
        connection.execute(SQL)
    kept_rows: list[Seen] = [
        MemorySeen(2, clock=lambda: now[0]),
        SqlSeen(lambda: sqlite3.connect(tmp_path / "seen.db"), clock=lambda: now[0]),
    ]
    for seen in kept_rows:
        now[0] = 0
        assert [seen.add("a", 10), seen.add("a", 10)] == [True, False]
        now[0] = 11
        assert seen.add("a", 10)
    assert [kept_rows[0].add(name, 10) for name in "bca"] == [True, True, True]  # two are kept: `a` had to go


def test_old_and_new_secrets_both_verify_while_they_change() -> None:
    new = new_secret()
    headers = signed(BODY, "evt_1", new, SECRET)
    for secret in (SECRET, new):
        receiver(secret).verify(headers, BODY)
        assert standard_webhooks(secret, headers, BODY)
    with pytest.raises(NotVerified):
        receiver(SECRET).verify(signed(BODY, "evt_1", new), BODY)


@pytest.mark.parametrize("event_id", ["", "a.b", "a b", "é", "x" * 129, "a\n"])
def test_an_id_that_could_be_misread_is_not_signed(event_id: str) -> None:
    with pytest.raises(InvalidInput):
        signed(BODY, event_id)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_x", "abc", "whsec_" + base64.b64encode(b"short").decode()])
def test_a_weak_secret_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(InvalidInput) as excinfo:
        key_of(secret)
    assert not secret.removeprefix("whsec_") or secret not in str(excinfo.value)


@pytest.mark.parametrize("vector", VECTORS, ids=[v["headers"]["webhook-id"] for v in VECTORS])
def test_the_vectors_of_the_guide_hold(vector: dict[str, Any]) -> None:
    body = vector["body"].encode()
    event = receiver(vector["secret"], now=vector["now_s"]).verify(vector["headers"], body)
    assert event.event_id == vector["headers"]["webhook-id"]
    assert standard_webhooks(vector["secret"], vector["headers"], body)


def test_node_verifies_them_too_and_refuses_what_was_changed() -> None:
    changes = [
        {**v, "headers": {**v["headers"], f"x-euterpe-{name}": v["headers"][f"x-euterpe-{name}"] + "0"}}
        for v in VECTORS[:1]
        for name in ("timestamp", "nonce", "event-id", "signature")
    ]
    late = [{**VECTORS[0], "now_s": VECTORS[0]["now_s"] + 600}]
    script = ROOT / "examples" / "verify_webhook.mjs"
    text = json.dumps([*VECTORS, *changes, *late])
    process = subprocess.run([node()[0], script], input=text, capture_output=True, text=True, timeout=30, check=True)
    ids, refusal = json.loads(process.stdout)[: len(VECTORS)], json.loads(process.stdout)[len(VECTORS) :]
    assert ids == [v["headers"]["webhook-id"] for v in VECTORS]
    assert all("refused" in answer for answer in refusal), refusal


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_fastapi_example_works(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    app = _load("webhook_fastapi").app
    headers = signed(at_s=int(__import__("time").time()))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://x") as client:
        answers = [await client.post("/hook", headers=headers, content=BODY) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [204, 401]
    assert capsys.readouterr().out.count("evt_1") == 2  # the id and, once more, in the body


def test_the_flask_example_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Flask is not among our tools: a stand-in of its three names runs the example's own lines."""
    request = types.SimpleNamespace(headers=signed(at_s=int(__import__("time").time())), get_data=lambda: BODY)

    def abort(status: int, text: str) -> None:
        raise PermissionError(status, text)

    flask = types.ModuleType("flask")
    app = type("Flask", (), {"__init__": lambda *_: None, "post": lambda *_: lambda function: function})
    flask.__dict__.update(Flask=app, request=request, abort=abort)
    monkeypatch.setitem(sys.modules, "flask", flask)
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("WEBHOOK_SEEN", str(tmp_path / "seen.db"))
    hook = _load("webhook_flask").hook
    assert hook() == ("", 204)
    with pytest.raises(PermissionError, match="before"):
        hook()
