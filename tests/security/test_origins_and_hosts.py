"""A server without keys ignores pages of other sites; a request names this server once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import pytest

from callsheet.asgi import ROUTERS
from callsheet.http.hosts import Hosts
from callsheet.http.keys import ApiKeys
from callsheet.http.limits import FailedSignIns
from callsheet.http.middleware import EdgeRules
from callsheet.http.problems import Problem
from callsheet.http.proxies import Proxies
from callsheet.kernel.errors import InvalidInput
from callsheet.receiver import NotVerified, Receiver
from tests import stores
from tests.http.live import ADMIN, Live, problem, serving
from tests.http.raw import exchange

JOB = {"task": "chat", "payload": {}}
PROOF = {"X-Callsheet-Studio": "1", "Sec-Fetch-Site": "same-origin"}


@contextlib.asynccontextmanager
async def site(**options: Any) -> AsyncIterator[tuple[Live, httpx2.AsyncClient]]:
    """A server with every route, and a client without a key."""
    async with serving(stores.fresh_url("sqlite"), routers=ROUTERS, **options) as live, live.bare() as client:
        yield live, client


async def jobs(client: httpx2.AsyncClient) -> int:
    return len((await client.get("/v1/jobs")).json()["jobs"])


FOREIGN = {
    "another origin": {"Origin": "https://evil.example.org"},
    "another port": {"Origin": "http://127.0.0.1:1"},
    "a sandboxed page": {"Origin": "null"},
    "no origin": {"Origin": ""},
    "as the browser says": {"Sec-Fetch-Site": "cross-site"},
    "another port as the browser says": {"Sec-Fetch-Site": "same-site"},
    "both": {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example.org"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
async def test_a_page_of_another_site_changes_nothing_without_keys(headers: Mapping[str, str]) -> None:
    async with site(auth=False) as (_, client):
        job_id = (await client.post("/v1/jobs", json=JOB)).json()["job_id"]
        for method, path, body in (
            ("POST", "/v1/jobs", JOB),
            ("POST", "/api/jobs", {"task": "compose", "payload": {}}),
            ("POST", f"/v1/jobs/{job_id}/cancel", None),
            ("POST", "/v1/workers/enrolments", None),
            ("DELETE", "/studio/session", None),
            ("PUT", "/objects/a", None),
        ):
            answer = await client.request(method, path, json=body, headers=dict(headers))
            problem(answer, 403, "forbidden")
        assert await jobs(client) == 1
        assert (await client.get(f"/v1/jobs/{job_id}")).json()["status"] == "queued"


async def test_our_own_page_and_programs_change_things_without_keys() -> None:
    async with site(auth=False) as (live, client):
        for headers in ({}, {"Origin": live.url, "Sec-Fetch-Site": "same-origin"}, {"Origin": live.url}):
            assert (await client.post("/v1/jobs", json=JOB, headers=headers)).status_code == 202


@pytest.mark.parametrize("host", ["evil.example.org", "127.0.0.1.example.org", "localhost.example.org", "10.0.0.1"])
async def test_another_name_is_not_answered_to_without_keys(host: str) -> None:
    async with site(auth=False) as (_, client):
        for host_header in (host, f"{host}:8484"):
            for answer in (
                await client.get("/v1/jobs", headers={"Host": host_header}),
                await client.get("/studio", headers={"Host": host_header}),
                await client.post(
                    "/v1/jobs", json=JOB, headers={"Host": host_header, "Origin": f"http://{host_header}"}
                ),
            ):
                problem(answer, 421, "host_not_allowed")
        assert await jobs(client) == 0


async def test_names_of_this_machine_are_answered_to() -> None:
    async with site(auth=False) as (_, client):
        for host in ("localhost", "LOCALHOST:80", "localhost.", "127.0.0.1:8484", "127.1.2.3", "[::1]:8484"):
            assert (await client.get("/v1/jobs", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("auth", [True, False])
async def test_names_that_are_configured_are_answered_to(auth: bool) -> None:  # noqa: FBT001
    edge = EdgeRules(hosts=Hosts.of(["jobs.example.org"], keyless=False))
    async with site(auth=auth, edge=edge) as (live, _):
        for host, status in (("jobs.example.org", 200), ("Jobs.Example.Org:443", 200), ("evil.example.org", 421)):
            assert (await live.client.get("/v1/jobs", headers={"Host": host})).status_code == status
            assert (await live.client.get("/healthz", headers={"Host": host})).status_code == 200
    with pytest.raises(InvalidInput, match="allowed-hosts"):
        Hosts.of(["https://jobs.example.org/"], keyless=False)


async def test_a_request_names_its_host_once() -> None:
    async with site() as (live, _):
        key = f"Authorization: Bearer {ADMIN}\r\n"
        for hosts in (
            "",
            "Host: a\r\nHost: a\r\n",
            "Host: a\r\nHost: b\r\n",
            "Host: \r\n",
            "Host: a b\r\n",
            "Host: a,b\r\n",
        ):
            response = await exchange(live, f"GET /v1/jobs HTTP/1.1\r\n{hosts}{key}\r\n".encode())
            assert response.startswith(b"HTTP/1.1 400"), (hosts, response)
        assert (await exchange(live, f"GET /v1/jobs HTTP/1.1\r\nHost: a\r\n{key}\r\n".encode())).startswith(
            b"HTTP/1.1 200"
        )
        assert (await exchange(live, f"GET /v1/jobs HTTP/1.0\r\n{key}\r\n".encode())).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("auth", [True, False])
@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_json_says_that_it_is_json(kind: str | None, auth: bool) -> None:  # noqa: FBT001
    async with site(auth=auth) as (live, _):
        headers = {} if kind is None else {"Content-Type": kind}
        job_id = await live.job()
        for path, body in (
            ("/v1/jobs", b'{"task":"chat","payload":{}}'),
            ("/api/jobs", b'{"task":"compose","payload":{}}'),
            (f"/v1/jobs/{job_id}/cancel", b'{"reason":"x"}'),
            ("/v1/workers/enrolments", b"{}"),
            ("/internal/worker/claim", b'{"worker_id":"w"}'),
            ("/internal/worker/enroll", b'{"enrolment_token":"x","worker_name":"w"}'),
        ):
            answer = await live.client.post(path, content=body, headers=headers)
            assert "application/json" in problem(answer, 415, "unsupported_media_type")["detail"], path
        assert await jobs(live.client) == 1
        assert (await live.client.post(f"/v1/jobs/{job_id}/cancel")).status_code == 202  # an empty body is of no type


async def test_the_cookie_is_for_https_alone_where_a_proxy_says_that_it_came_by_https() -> None:
    async with site() as (_, client):
        for headers, is_secure in (
            ({}, False),
            ({"X-Forwarded-Proto": "https"}, True),
            ({"X-Forwarded-Proto": "http"}, False),
            ({"Forwarded": "for=1.2.3.4;proto=https"}, True),
            ({"Forwarded": 'for=1.2.3.4;proto=https, for="[::1]";Proto=http'}, False),
        ):
            answer = await client.post("/studio/session", json={"key": ADMIN}, headers={**PROOF, **headers})
            assert ("secure" in answer.headers["set-cookie"].lower()) == is_secure, headers


class Asked:
    """A request as `Proxies` looks at it."""

    def __init__(self, peer: str, **headers: str) -> None:
        self.client = httpx2.URL(f"http://[{peer}]" if ":" in peer else f"http://{peer}")
        self.url = httpx2.URL("http://x")
        self.headers = httpx2.Headers({name.replace("_", "-"): value for name, value in headers.items()})
        self.headers.getlist = self.headers.get_list  # type: ignore[attr-defined]


PEERS: list[tuple[str, dict[str, str], str]] = [
    ("9.9.9.9", {"x_forwarded_for": "1.2.3.4"}, "9.9.9.9"),
    ("10.0.0.1", {"x_forwarded_for": "6.6.6.6, 1.2.3.4, 10.0.0.2"}, "1.2.3.4"),
    ("10.0.0.1", {"forwarded": 'for=6.6.6.6, for="1.2.3.4:55"'}, "1.2.3.4"),
    ("10.0.0.1", {"forwarded": 'for="[2001:db8::1]:55"'}, "2001:db8::1"),
    ("10.0.0.1", {"x_forwarded_for": "1.2.3.4, rubbish"}, "10.0.0.1"),
    ("10.0.0.1", {}, "10.0.0.1"),
]


@pytest.mark.parametrize(("peer", "headers", "client"), PEERS)
def test_only_a_trusted_proxy_is_believed_about_an_address(peer: str, headers: dict[str, str], client: str) -> None:
    request: Any = Asked(peer, **headers)
    assert Proxies.of(["10.0.0.0/8"]).client_of(request) == client
    assert Proxies().client_of(request) == peer
    assert not Proxies().is_https(Asked("9.9.9.9", x_forwarded_proto="https"))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="trusted-proxies"):
        Proxies.of(["10.0.0.1/8"])


async def test_sign_ins_count_against_the_key_s_rate() -> None:
    async with site() as (live, client):
        key = await live.text("acme", scopes=["jobs:read"], rate=0.001)
        assert (await client.post("/studio/session", json={"key": key}, headers=PROOF)).status_code == 201
        answer = await client.post("/studio/session", json={"key": key}, headers=PROOF)
        problem(answer, 429, "too_many_requests")
        assert int(answer.headers["retry-after"]) > 1
        assert len(await live.engine.store.documents("studio_session")) == 1


async def test_failed_sign_ins_count_against_their_address() -> None:
    async with site() as (live, client):
        live.state.failed_sign_ins = FailedSignIns(lambda: 0.0)
        for _ in range(10):
            problem(await client.post("/studio/session", json={"key": "wrong"}, headers=PROOF), 401, "unauthorized")
        for body in ({"key": "wrong"}, {"key": ADMIN}):
            answer = await client.post("/studio/session", json=body, headers=PROOF)
            problem(answer, 429, "too_many_requests")
            assert answer.headers["retry-after"] == "5"
        key = await live.text("acme")  # others at this address have keys that nobody guesses
        assert (await client.post("/studio/session", json={"key": key}, headers=PROOF)).status_code == 201
        enrolment = {"enrolment_token": "x", "worker_name": "w"}
        problem(await client.post("/internal/worker/enroll", json=enrolment), 429, "too_many_requests")
        assert (await live.client.get("/v1/jobs")).status_code == 200  # a key is another door


def test_an_address_that_waits_may_try_again() -> None:
    now = 0.0
    failed_sign_ins = FailedSignIns(lambda: now)

    def fails() -> str:
        with pytest.raises(Problem) as excinfo, failed_sign_ins.count_failures("1.2.3.4", is_guessable=True):
            raise Problem("unauthorized", "no")
        return excinfo.value.code

    assert [fails() for _ in range(11)] == ["unauthorized"] * 10 + ["too_many_requests"]
    now = 5.0
    assert [fails(), fails()] == ["unauthorized", "too_many_requests"]


@pytest.mark.parametrize("key", ["a", "short-key", "aaaaaaaaaaaaaaaaaaaaaaaa", "abababababababababab"])
async def test_a_key_that_can_be_guessed_is_refused_at_the_start(key: str) -> None:
    store = await stores.open_store(stores.fresh_url("sqlite"))
    with pytest.raises(InvalidInput, match="CALLSHEET_API_KEY") as excinfo:
        ApiKeys(store, bootstrap=key)
    assert key not in str(excinfo.value) or key == "a"
    await store.close()


def test_a_nonce_cannot_hold_a_piece_of_the_body() -> None:
    from callsheet.outbox.signing import key_of, new_secret, signature, signed_headers  # noqa: PLC0415

    secret, body = new_secret(), b'5.{"event_id":"e1"}'
    headers = signed_headers([key_of(secret)], "e1", body, attempt=1, at_s=1000)
    receiver = Receiver([secret], clock=lambda: 1000.0)
    moved_row = {**headers, "x-euterpe-nonce": f"{headers['x-euterpe-nonce']}.5"}
    with pytest.raises(NotVerified, match="nonce"):
        receiver.verify(moved_row, body[2:])
    with pytest.raises(InvalidInput):
        signature(key_of(secret), "1000", "a.b", b"{}")
