"""Newer credentials for a running job: they are requested from its requester, and each operation gets valid ones."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from callsheet.kernel import commands
from callsheet.kernel.errors import StaleClaim
from callsheet.kernel.job import Job, Status
from callsheet.net.backoff import doubled, pause_after

from .errors import CredentialRejected, RefreshFailed, RefreshUnreachable

if TYPE_CHECKING:
    from callsheet.engine import Engine
    from callsheet.kernel.job import Job

    from .secret import Secret
    from .vault import Opened, Vault


class Meaning(StrEnum):
    """The conclusion from a storage error: refresh the credentials, fix a clock, or neither."""

    REFRESH = "refresh"
    CLOCK = "clock"
    OTHER = "other"


# S3, GCS' and Azure's own words, whatever status comes with them: S3 says 400 for an expired token.
WORDS = {
    "ExpiredToken": Meaning.REFRESH,
    "ExpiredTokenException": Meaning.REFRESH,
    "TokenRefreshRequired": Meaning.REFRESH,
    "InvalidToken": Meaning.REFRESH,
    "RequestExpired": Meaning.REFRESH,
    "AuthenticationFailed": Meaning.REFRESH,
    "AuthenticationRequired": Meaning.REFRESH,
    "InvalidAuthenticationInfo": Meaning.REFRESH,
    "RequestTimeTooSkewed": Meaning.CLOCK,
}
REFUSED = frozenset({401, 403})
BUSY = frozenset({408, 423, 425, 429, 500, 502, 503, 504})
FIRST_SUCCESS, FIRST_REDIRECT = 200, 300


def meaning_of(code: str, status: int = 0, message: str = "") -> Meaning:
    """Classify a storage error by its code, status and message. New credentials do not help against a wrong clock."""
    if (meaning := WORDS.get(code)) is not None:
        return meaning
    if code == "AccessDenied" and "expired" in message.lower():
        return Meaning.REFRESH
    return Meaning.REFRESH if status in REFUSED else Meaning.OTHER


class RefreshRequest(NamedTuple):
    """A request to a job's requester for newer credentials."""

    refresh_url: str
    job_id: str
    requester_id: str
    credential_version: int
    refresh_count: int

    def body(self) -> bytes:
        """Return the JSON body to sign and send; it names the refused version."""
        fields = self._asdict()
        del fields["refresh_url"]
        return json.dumps({"event": "credentials.refresh", **fields}, separators=(",", ":")).encode()


Send = Callable[[RefreshRequest], Awaitable[int]]


class Patience(NamedTuple):
    """The time limits and the number of sends of a refresh. Each refresh is counted on the job, apart from attempts."""

    whole_s: float = 120.0
    first_look_s: float = 0.1
    longest_look_s: float = 2.0
    sends: int = 4
    between_sends_s: float = 1.0


class Refresher:
    """Requests newer credentials from requesters; each claim has at most one request in flight in this process."""

    def __init__(self, engine: Engine, vault: Vault, send: Send, patience: Patience = Patience()) -> None:  # noqa: B008
        self._engine = engine
        self._vault = vault
        self._send = send
        self._patience = patience
        self._under_way: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def refresh(self, job: Job, refresh_url: str, refused_version: int) -> Opened:
        """Return credentials with a version above `refused_version`, after a request to the requester if needed.

        Raises CredentialRejected after a refusal or too many refreshes, RefreshFailed after the time limit, StaleClaim.
        """
        if await self._vault.version(job.job_id) <= refused_version:
            await self._together(job, refresh_url, refused_version)
        return await self._vault.open(job)

    async def close(self) -> None:
        """Cancel all refresh requests in flight."""
        for task in list(self._under_way.values()):
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _together(self, job: Job, refresh_url: str, refused_version: int) -> None:
        key = (job.job_id, job.claim_version)
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(job, refresh_url, refused_version), name=f"refresh {job.job_id}")
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        await asyncio.shield(task)  # one that is canceled leaves the others their answer

    async def _ask(self, job: Job, refresh_url: str, refused_version: int) -> None:
        if not refresh_url:
            raise CredentialRejected("storage refuses the credentials, and the job has no refresh_url")
        if await self._vault.version(job.job_id) > refused_version:
            return  # they came between the caller's look and now, by a request that has just ended
        counted_job = await self._count(job)
        request = RefreshRequest(
            refresh_url, job.job_id, counted_job.requester_id, refused_version, counted_job.refresh_count
        )
        deadline = time.monotonic() + self._patience.whole_s
        await self._deliver(request, deadline)
        await self._arrival(request, deadline)

    async def _count(self, job: Job) -> Job:
        """Count the refresh before sending, so that crashes cannot repeat it endlessly; raises if none is left."""
        now = await self._engine.get(job.job_id)
        if now.status is not Status.RUNNING or now.claim_version != job.claim_version:
            raise StaleClaim(f"claim {job.claim_version} of job {job.job_id} is not held any more; stop its work")
        most = commands.policy_of(now).max_refreshes
        if now.refresh_count >= most:
            raise CredentialRejected(f"storage refuses the credentials after {most} refreshes, as many as there may be")
        return await self._engine.settle_one(now, commands.refresh(now))

    async def _deliver(self, request: RefreshRequest, deadline: float) -> None:
        """Send the request until the requester accepts it; a status other than busy or 2xx is final."""
        why, between_s = "", self._patience.between_sends_s
        for failures in range(self._patience.sends):
            pause_s = pause_after(failures, between_s, math.inf) - between_s
            if time.monotonic() + pause_s > deadline:
                break
            await asyncio.sleep(pause_s)
            try:
                status = await self._send(request)
            except (OSError, TimeoutError) as error:
                why = type(error).__name__
                continue
            if FIRST_SUCCESS <= status < FIRST_REDIRECT:
                return
            if status not in BUSY:
                raise CredentialRejected(f"the requester refused to refresh the credentials, with status {status}")
            why = f"status {status}"
        raise RefreshUnreachable(f"the requester's refresh_url could not be reached ({why})") from None

    async def _arrival(self, request: RefreshRequest, deadline: float) -> None:
        """Poll until the credentials' version is above the refused version; raises RefreshFailed at the deadline."""
        pause_s = self._patience.first_look_s
        while await self._vault.version(request.job_id) <= request.credential_version:
            if time.monotonic() > deadline:
                raise RefreshFailed(f"no newer credentials came within {self._patience.whole_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = doubled(pause_s, pause_s, self._patience.longest_look_s)


T = TypeVar("T")
EARLY = 0.8  # of their life: then newer ones are asked for, while the old ones still serve


class _Good(NamedTuple):
    credentials: Opened
    renew_at: float
    ends_at: float


class Access:
    """The storage credentials of one attempt, refreshed as needed. Operations may run concurrently."""

    def __init__(self, vault: Vault, refresher: Refresher, job: Job, refresh_url: str) -> None:
        self._vault = vault
        self._refresher = refresher
        self._job = job
        self._refresh_url = refresh_url
        self._good: _Good | None = None
        self._first = asyncio.Lock()

    async def run(self, operation: Callable[[Secret], Awaitable[T]], meaning: Callable[[Exception], Meaning]) -> T:
        """Run an operation; if `meaning` maps its error to REFRESH, refresh the credentials and run it once more.

        Raises CredentialRejected if storage refuses the newer credentials as well.
        """
        credentials = await self._current()
        try:
            return await operation(credentials.secret)
        except Exception as error:
            if meaning(error) is not Meaning.REFRESH:
                raise
        newer = await self._refresh(credentials)
        try:
            return await operation(newer.secret)
        except Exception as error:
            if meaning(error) is not Meaning.REFRESH:
                raise
        raise CredentialRejected(f"storage refuses version {newer.credential_version} of the credentials as well")

    async def _current(self) -> Opened:
        async with self._first:
            if self._good is None:
                return self._keep(await self._vault.open(self._job))
        if time.time() >= self._good.renew_at and self._refresh_url:
            try:
                return await self._refresh(self._good.credentials)
            except (CredentialRejected, RefreshFailed):
                if time.time() >= self._good.ends_at:
                    raise  # else the old ones are still good
        return self._good.credentials

    async def _refresh(self, current: Opened) -> Opened:
        version = current.credential_version
        if self._good is not None and self._good.credentials.credential_version > version:
            return self._good.credentials  # another operation has refreshed them
        return self._keep(await self._refresher.refresh(self._job, self._refresh_url, version))

    def _keep(self, credentials: Opened) -> Opened:
        now, ends_at = time.time(), expiry_of(credentials.secret)
        self._good = _Good(credentials, now + EARLY * (ends_at - now), ends_at)
        return credentials


def expiry_of(secret: Secret) -> float:
    """Return the credentials' expiry (`expires_at`: seconds or an ISO date) in epoch seconds; infinity without one."""
    try:
        moment = secret.reveal_json().get("expires_at")
        if isinstance(moment, str):
            return datetime.fromisoformat(moment).timestamp()
        return float(moment) if moment is not None else float("inf")
    except (ValueError, TypeError, AttributeError):
        return float("inf")
