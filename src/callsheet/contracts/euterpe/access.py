"""A running job's access to storage: keys and URLs from the vault, refreshed when the storage refuses them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from callsheet.kernel.wire import encode
from callsheet.net.guard import BlockedTarget, InvalidTarget, Resolve, Rules, SystemResolver, target_of
from callsheet.net.guarded_client import PostFailed
from callsheet.net.guarded_proxy import GuardedProxy
from callsheet.objects import Credentials, HeldCredentials, Objects
from callsheet.objects.errors import ObjectsError, ObjectsFailing
from callsheet.objects.s3 import S3Objects
from callsheet.objects.s3_wire import Bucket
from callsheet.outbox.endpoints import EndpointNotFound
from callsheet.outbox.signing import key_of, signed_headers
from callsheet.vault.errors import CredentialRejected

from .download import Refused
from .locations import Place

if TYPE_CHECKING:
    from callsheet.kernel.job import Job
    from callsheet.net.guarded_client import GuardedClient
    from callsheet.outbox import Endpoints
    from callsheet.vault import Opened, Vault
    from callsheet.vault.refresh import Refresher, RefreshRequest, Send

    from .models import Storage

T = TypeVar("T")
ASKS = "credentials.refresh"


class Access:
    """The credentials of one attempt, decrypted on first use."""

    def __init__(self, vault: Callable[[], Vault], refresher: Callable[[], Refresher], job: Job, url: str) -> None:
        self._vault, self._refresher, self._job, self._url = vault, refresher, job, url
        self._credentials: Opened | None = None
        self._lock = asyncio.Lock()

    async def keys_for(self, part: str) -> HeldCredentials:
        """Return the keys for `source` or `output`; refused keys are refreshed while transfers run."""
        credentials = await self._current()
        version = credentials.credential_version

        async def newer(_: Credentials) -> Credentials:
            nonlocal version
            newer_credentials = await self._newer_than(version)
            version = newer_credentials.credential_version
            return _keys(newer_credentials, part)

        return HeldCredentials(_keys(credentials, part), newer, on_any_refusal=True)

    async def with_url(self, work: Callable[[str], Awaitable[T]]) -> T:
        """Call `work` with the source's signed URL; after a refusal, refresh the URL and call `work` once more."""
        credentials = await self._current()
        try:
            return await work(_url(credentials))
        except Refused as error:
            if not error.stale:
                raise
        newer = await self._newer_than(credentials.credential_version)
        try:
            return await work(_url(newer))
        except Refused as error:
            if not error.stale:
                raise
        raise CredentialRejected(f"the source refuses version {newer.credential_version} of its URL as well")

    async def _current(self) -> Opened:
        async with self._lock:
            if self._credentials is None:
                self._credentials = await self._vault().open(self._job)
            return self._credentials

    async def _newer_than(self, version: int) -> Opened:
        async with self._lock:
            if self._credentials is None or self._credentials.credential_version <= version:
                self._credentials = await self._refresher().refresh(self._job, self._url, version)
            return self._credentials


@contextlib.asynccontextmanager
async def s3_objects(
    place: Place, storage: Storage, keys_for: HeldCredentials, rules: Rules, *, resolve: Resolve | None = None
) -> AsyncIterator[Objects]:
    """Open the bucket of a place; raises InvalidTarget and BlockedTarget for a forbidden endpoint."""
    bucket = Bucket(place.host, storage.endpoint, storage.region)
    if not storage.endpoint:
        async with S3Objects(bucket, keys_for) as objects:
            with answers_by_contract():
                yield objects
        return
    own = SystemResolver(1) if resolve is None else None
    gate = GuardedProxy(target_of(storage.endpoint, rules, "storage"), rules, resolve or own)  # type: ignore[arg-type] # one is there
    try:
        async with gate, S3Objects(bucket, keys_for, proxy_url=gate.url) as objects:
            with answers_by_contract():
                yield objects
    except ObjectsError as error:
        raise gate.blocked_target or error from None
    finally:
        if own is not None:
            own.close()


class StorageFailing(ObjectsError):
    """A requester's storage answered that it cannot serve now. The contract's retry policy decides by the status."""

    code = "objects_unavailable"
    retryable = True


@contextlib.contextmanager
def answers_by_contract() -> Iterator[None]:
    """Convert an answer such as 503 from a requester's storage to the contract's error of the attempt.

    A storage that sends no answer at all remains an outage, and the job waits until the outage ends.
    """
    try:
        yield
    except ObjectsFailing as error:
        raise StorageFailing(str(error), provider_code=error.provider_code) from None


def sender(endpoints: Endpoints, outlet: GuardedClient) -> Send:
    """Return the function that requests newer credentials: a guarded POST, signed with the callback secret."""

    async def send(request: RefreshRequest) -> int:
        job = request.job_id.replace("-", "")
        event_id = f"ref_{job}_{request.credential_version}_{request.refresh_count}"
        message = request._asdict()
        del message["refresh_url"]
        body = encode({"event_id": event_id, "type": ASKS, **message}).encode()
        try:
            own = await endpoints.own(request.requester_id)
            keys = [key_of(text) for text in await endpoints.open(own, time.time_ns() // 1_000_000)]
            headers = signed_headers(keys, event_id, body, attempt=request.refresh_count, at_s=int(time.time()))
            answer = await outlet.post(request.refresh_url, body, {"content-type": "application/json", **headers})
        except EndpointNotFound:
            raise CredentialRejected("there is no secret to sign the request to refresh_url with") from None
        except (InvalidTarget, BlockedTarget):
            raise CredentialRejected("refresh_url leads where no callback may go") from None
        except PostFailed as error:
            raise ConnectionError(error.code) from None
        return answer.status

    return send


def _keys(credentials: Opened, part: str) -> Credentials:
    keys: Any = credentials.secret.reveal_json().get(part)
    if keys is None:
        raise CredentialRejected(
            f"version {credentials.credential_version} of the credentials has no keys for the {part}"
        )
    ends = keys.get("expires_at")
    expires_at_ms = round(datetime.fromisoformat(ends).timestamp() * 1000) if ends else None
    return Credentials(keys["access_key_id"], keys["secret_access_key"], keys["session_token"], expires_at_ms)


def _url(credentials: Opened) -> str:
    return str(credentials.secret.reveal_json()["source_url"])
