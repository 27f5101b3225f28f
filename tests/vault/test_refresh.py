from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from callsheet.engine import Engine
from callsheet.kernel import commands
from callsheet.kernel.errors import StaleClaim
from callsheet.kernel.job import Job
from callsheet.store.protocol import ClaimRequest
from callsheet.vault import Secret, Vault
from callsheet.vault.errors import CredentialRejected, RefreshFailed
from callsheet.vault.keys import first_keys
from callsheet.vault.local import LocalKeyring
from callsheet.vault.refresh import Access, Meaning, Patience, Refresher, RefreshRequest, expiry_of, meaning_of
from tests.store_driver import new_job

URL = "https://requester.example/refresh"
SHORT = Patience(whole_s=0.3, first_look_s=0.005, longest_look_s=0.02, sends=3, between_sends_s=0.005)
LONG = SHORT._replace(whole_s=20.0)

TABLE = [
    ("ExpiredToken", 400, "The provided token has expired.", Meaning.REFRESH),
    ("TokenRefreshRequired", 400, "", Meaning.REFRESH),
    ("InvalidToken", 400, "", Meaning.REFRESH),
    ("AccessDenied", 403, "Request has expired", Meaning.REFRESH),
    ("AccessDenied", 400, "Request has Expired", Meaning.REFRESH),
    ("AccessDenied", 403, "Access Denied", Meaning.REFRESH),  # the contract: 401 and 403 ask for a refresh
    ("AuthenticationFailed", 403, "Signature not valid in the specified time frame", Meaning.REFRESH),
    ("", 401, "", Meaning.REFRESH),
    ("", 403, "", Meaning.REFRESH),
    ("RequestTimeTooSkewed", 403, "The difference between the request time and the server's time", Meaning.CLOCK),
    ("AccessDenied", 400, "", Meaning.OTHER),
    ("NoSuchKey", 404, "the link has expired", Meaning.OTHER),
    ("SlowDown", 503, "", Meaning.OTHER),
    ("InternalError", 500, "", Meaning.OTHER),
    ("EntityTooLarge", 400, "", Meaning.OTHER),
]


@pytest.mark.parametrize(("code", "status", "message", "meaning"), TABLE)
def test_the_error_code_decides_not_the_status_alone(code: str, status: int, message: str, meaning: Meaning) -> None:
    assert meaning_of(code, status, message) is meaning


class StorageError(Exception):
    def __init__(self, code: str, status: int = 400, message: str = "") -> None:
        super().__init__(code)
        self.told = (code, status, message)


def meaning(error: Exception) -> Meaning:
    return meaning_of(*error.told) if isinstance(error, StorageError) else Meaning.OTHER


class Storage:
    """Storage that takes credentials from a version on."""

    def __init__(self, good_from: int, error: Callable[[], Exception]) -> None:
        self.good_from = good_from
        self.error = error
        self.calls = 0

    async def put(self, secret: Secret) -> str:
        self.calls += 1
        await asyncio.sleep(0)
        if secret.reveal_json()["n"] < self.good_from:
            raise self.error()
        return "stored"


class Requester:
    """A requester that is asked for newer credentials, and gives them a moment later, or not."""

    def __init__(self, vault: Vault, *, gives: bool = True, statuses: tuple[int | Exception, ...] = ()) -> None:
        self.vault = vault
        self.gives = gives
        self.statuses = list(statuses)
        self.asked: list[RefreshRequest] = []
        self.tasks: list[asyncio.Task[int]] = []

    async def send(self, request: RefreshRequest) -> int:
        self.asked.append(request)
        status = self.statuses.pop(0) if self.statuses else 202
        if isinstance(status, Exception):
            raise status
        if self.gives and status < 300:
            newer = Secret(json.dumps({"n": request.credential_version + 1}))
            work = self.vault.replace(request.job_id, "acme", newer, expected_version=request.credential_version)
            self.tasks.append(asyncio.create_task(work))
        return status


async def running(engine: Engine, vault: Vault, **fields: Any) -> Job:
    new = new_job(requester_id="acme", contract="euterpe", **fields)
    envelope = await vault.seal(Secret('{"n": 1}'), new.job_id, "acme")
    await engine.enqueue([new._replace(credentials=envelope)])
    (job,) = await engine.claim(ClaimRequest("w"))
    return job


async def test_a_hundred_parts_at_once_make_one_refresh(engine: Engine, vault: Vault) -> None:
    job = await running(engine, vault)
    requester = Requester(vault)
    storage = Storage(2, lambda: StorageError("ExpiredToken"))
    access = Access(vault, Refresher(engine, vault, requester.send, LONG), job, URL)
    parts = await asyncio.gather(*(access.run(storage.put, meaning) for _ in range(100)))
    assert parts == ["stored"] * 100
    assert [(r.credential_version, r.refresh_count) for r in requester.asked] == [(1, 1)]
    after = await engine.get(job.job_id)
    assert (after.refresh_count, after.attempt_count) == (1, 1)


async def test_a_look_that_is_older_than_the_last_refresh_makes_no_other(
    memory: Engine, sealed: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader reads the version, a complete refresh happens, and the reader continues."""
    job = await running(memory, sealed)
    requester = Requester(sealed)
    refresher = Refresher(memory, sealed, requester.send, LONG)
    version = sealed.version

    async def old(job_id: str) -> int:
        monkeypatch.setattr(sealed, "version", version)
        result = await version(job_id)
        await refresher.refresh(job, URL, 1)
        return result

    monkeypatch.setattr(sealed, "version", old)
    assert (await refresher.refresh(job, URL, 1)).credential_version == 2
    assert len(requester.asked) == 1


@pytest.fixture
async def memory() -> Any:
    async with Engine.from_url("sqlite::memory:") as engine:
        yield engine


@pytest.fixture
def sealed(memory: Engine) -> Vault:
    return Vault(memory.store, LocalKeyring(first_keys()))


@pytest.mark.parametrize("row", TABLE)
async def test_each_answer_of_storage_at_any_part(
    memory: Engine, sealed: Vault, row: tuple[str, int, str, Meaning]
) -> None:
    code, status, message, means = row
    for part in range(3):
        job = await running(memory, sealed)
        requester = Requester(sealed)
        good, bad = Storage(1, RuntimeError), Storage(2, lambda: StorageError(code, status, message))
        access = Access(sealed, Refresher(memory, sealed, requester.send, LONG), job, URL)
        for n in range(3):
            storage = bad if n == part else good
            if n == part and means is not Meaning.REFRESH:
                with pytest.raises(StorageError):
                    await access.run(storage.put, meaning)
            else:
                assert await access.run(storage.put, meaning) == "stored"
        assert len(requester.asked) == (1 if means is Meaning.REFRESH else 0)


async def test_newer_credentials_that_are_refused_too_are_rejected_for_good(memory: Engine, sealed: Vault) -> None:
    job = await running(memory, sealed)
    requester, storage = Requester(sealed), Storage(99, lambda: StorageError("ExpiredToken"))
    access = Access(sealed, Refresher(memory, sealed, requester.send, LONG), job, URL)
    with pytest.raises(CredentialRejected, match="version 2") as excinfo:
        await access.run(storage.put, meaning)
    assert (len(requester.asked), storage.calls) == (1, 2)
    assert excinfo.value.__cause__ is None
    assert excinfo.value.code == "credential_rejected"


async def test_refreshes_have_a_budget_of_their_own(memory: Engine, sealed: Vault) -> None:
    job = await running(memory, sealed)
    requester = Requester(sealed)
    refresher = Refresher(memory, sealed, requester.send, LONG)
    for version in (1, 2, 3):
        assert (await refresher.refresh(job, URL, version)).credential_version == version + 1
    with pytest.raises(CredentialRejected, match="3 refreshes"):
        await refresher.refresh(job, URL, 4)
    after = await memory.get(job.job_id)
    assert (after.refresh_count, after.attempt_count, len(requester.asked)) == (3, 1, 3)


async def test_a_version_that_has_advanced_already_costs_no_refresh(memory: Engine, sealed: Vault) -> None:
    job = await running(memory, sealed)
    await sealed.replace(job.job_id, "acme", Secret('{"n": 2}'))
    requester = Requester(sealed)
    store = await Refresher(memory, sealed, requester.send, LONG).refresh(job, URL, 1)
    assert (store.credential_version, requester.asked) == (2, [])
    assert (await memory.get(job.job_id)).refresh_count == 0


async def test_the_job_goes_on_only_if_the_version_advanced(memory: Engine, sealed: Vault) -> None:
    """The requester answers 202 without acting: the wait is bounded, and the refresh is counted."""
    job = await running(memory, sealed)
    requester = Requester(sealed, gives=False)
    with pytest.raises(RefreshFailed, match="no newer credentials"):
        await Refresher(memory, sealed, requester.send, SHORT).refresh(job, URL, 1)
    assert (await memory.get(job.job_id)).refresh_count == 1


@pytest.mark.parametrize(
    ("statuses", "sends", "error"),
    [
        ((423, 429, 204), 3, None),
        ((503, 204), 2, None),
        ((ConnectionResetError(), 200), 2, None),
        ((500, TimeoutError(), 502), 3, RefreshFailed),
        ((404,), 1, CredentialRejected),
        ((410,), 1, CredentialRejected),
        ((302,), 1, CredentialRejected),
    ],
)
async def test_what_the_requester_answers_decides(
    memory: Engine, sealed: Vault, statuses: Any, sends: int, error: type[Exception] | None
) -> None:
    job = await running(memory, sealed)
    requester = Requester(sealed, statuses=statuses)
    work = Refresher(memory, sealed, requester.send, LONG).refresh(job, URL, 1)
    if error is None:
        assert (await work).credential_version == 2
    else:
        with pytest.raises(error):
            await work
    assert len(requester.asked) == sends
    assert (await memory.get(job.job_id)).refresh_count == 1


async def test_without_a_refresh_url_nothing_is_asked_or_counted(memory: Engine, sealed: Vault) -> None:
    job = await running(memory, sealed)
    requester = Requester(sealed)
    with pytest.raises(CredentialRejected, match="no refresh_url"):
        await Refresher(memory, sealed, requester.send, LONG).refresh(job, "", 1)
    assert (requester.asked, (await memory.get(job.job_id)).refresh_count) == ([], 0)


async def test_a_worker_that_lost_its_claim_asks_nobody(memory: Engine, sealed: Vault) -> None:
    job = await running(memory, sealed)
    await memory.settle([commands.release(job)])
    requester = Requester(sealed)
    with pytest.raises(StaleClaim):
        await Refresher(memory, sealed, requester.send, LONG).refresh(job, URL, 1)
    assert requester.asked == []


async def test_one_that_is_canceled_leaves_the_others_their_answer(memory: Engine, sealed: Vault) -> None:
    job = await running(memory, sealed)
    gate = asyncio.Event()
    requester = Requester(sealed)

    async def slow(request: RefreshRequest) -> int:
        await gate.wait()
        return await requester.send(request)

    refresher = Refresher(memory, sealed, slow, LONG)
    first, second = (asyncio.create_task(refresher.refresh(job, URL, 1)) for _ in range(2))
    while not refresher._under_way:
        await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert (await second).credential_version == 2
    assert first.cancelled() or (await asyncio.gather(first, return_exceptions=True))
    assert len(requester.asked) == 1


async def test_closing_gives_up_what_is_under_way(memory: Engine, sealed: Vault) -> None:
    job = await running(memory, sealed)
    refresher = Refresher(memory, sealed, Requester(sealed, gives=False).send, LONG)
    waiting = asyncio.create_task(refresher.refresh(job, URL, 1))
    while not refresher._under_way:
        await asyncio.sleep(0)
    await refresher.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert refresher._under_way == {}


async def test_credentials_are_renewed_before_they_end_and_the_old_ones_serve_meanwhile(
    memory: Engine, sealed: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await running(memory, sealed)
    begun = time.time()
    await sealed.replace(job.job_id, "acme", Secret(json.dumps({"n": 2, "expires_at": begun + 1000})))
    requester = Requester(sealed, statuses=(404,))
    storage = Storage(0, RuntimeError)
    access = Access(sealed, Refresher(memory, sealed, requester.send, LONG), job, URL)
    await access.run(storage.put, meaning)
    for after_s, request in ((790, 0), (810, 1)):
        monkeypatch.setattr("callsheet.vault.refresh.time", _Clock(begun + after_s))
        assert await access.run(storage.put, meaning) == "stored"  # also when the requester refuses
        assert len(requester.asked) == request
    assert await access.run(storage.put, meaning) == "stored"
    assert await sealed.version(job.job_id) == 3
    requester.statuses, access._good = [404], access._good and access._good._replace(renew_at=0, ends_at=0)
    with pytest.raises(CredentialRejected):
        await access.run(storage.put, meaning)


class _Clock:
    def __init__(self, at: float) -> None:
        self.at = at

    def time(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return time.monotonic()


def test_expiry_is_read_from_seconds_or_a_date() -> None:
    assert expiry_of(Secret('{"expires_at": 1800000000}')) == 1_800_000_000
    assert expiry_of(Secret('{"expires_at": "2027-01-15T08:00:00Z"}')) == 1_800_000_000
    for text in ("{}", "no json", "[]", '{"expires_at": "soon"}', '{"expires_at": []}'):
        assert expiry_of(Secret(text)) == float("inf")


def test_what_is_sent_names_the_version_and_no_secret() -> None:
    body = json.loads(RefreshRequest(URL, "j", "acme", 4, 2).body())
    assert body == {
        "event": "credentials.refresh",
        "job_id": "j",
        "requester_id": "acme",
        "credential_version": 4,
        "refresh_count": 2,
    }
