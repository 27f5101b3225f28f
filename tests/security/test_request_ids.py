"""A request's id is logged and kept with jobs: a secret never becomes the id, whoever sends it."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator

import pytest

from callsheet.http.keys import new_key
from callsheet.http.middleware import id_of
from callsheet.http.sessions import COOKIE
from callsheet.http.worker_registry import ENROLMENT_HEAD, WORKER_HEAD
from tests import stores
from tests.http.live import ADMIN, Live, serving

JOB = {"task": "chat", "payload": {}}
JWT = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (b'{"alg":"none"}', b'{"sub":1}', b""))
SECRETS = {
    "a key": new_key(),
    "a worker's token": new_key(WORKER_HEAD),
    "an enrolment's": new_key(ENROLMENT_HEAD),
    "the beginning of a key": new_key()[:30],
    "a JWT": JWT,
    "a short JWT": "eyJh.eyJz.c2ln",
    "a session": "a-Z_9" * 8 + "abc",
    "the server's own key": ADMIN,
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
async def test_a_secret_is_no_request_id(small: Live, secret: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    answer = await small.client.post("/v1/jobs", json=JOB, headers={"X-Request-ID": secret})
    assert answer.headers["x-request-id"] != secret
    job = (await small.client.get(answer.headers["location"])).json()
    assert job["correlation_id"] == answer.headers["x-request-id"]
    async with small.bare() as stranger:  # also of one who has no key at all
        assert (await stranger.get("/v1/jobs", headers={"X-Request-ID": secret})).headers["x-request-id"] != secret
    ours = [record for record in caplog.records if record.name.startswith("callsheet")]
    assert not [record for record in ours if secret in f"{record.getMessage()}{record.__dict__}"]


@pytest.fixture
async def small() -> AsyncIterator[Live]:
    async with serving(stores.fresh_url("sqlite")) as live:
        yield live


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"authorization", b"Bearer my-own-password"),
        (b"x-api-key", b"my-own-password"),
        (b"cookie", COOKIE.encode() + b"=my-own-password; x=y"),
        (b"authorization", b"Basic Zm9v-my-own-password-Zm9v"),
    ],
)
def test_what_a_request_proves_itself_by_is_no_id(name: bytes, value: bytes) -> None:
    assert id_of(b"my-own-password", [(name, value)]) != "my-own-password"
    assert id_of(b"my-own-password", [(b"x-other", value)]) == "my-own-password"


@pytest.mark.parametrize("request_id", ["a", "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1", "A.b:c_d-e", "v1.2.3", "x" * 64])
def test_an_id_that_is_none_of_these_stays(request_id: str) -> None:
    assert id_of(request_id.encode(), [(b"authorization", b"Bearer a-key-of-somebody")]) == request_id
