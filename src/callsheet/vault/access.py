"""Storage credentials for a running job: each operation gets valid credentials, and one retry after a refusal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from .errors import CredentialRejected, RefreshFailed
from .refresh import Meaning

if TYPE_CHECKING:
    from callsheet.kernel.job import Job

    from .refresh import Refresher
    from .secret import Secret
    from .vault import Opened, Vault

T = TypeVar("T")
EARLY = 0.8  # of their life: then newer ones are asked for, while the old ones still serve


class _Good(NamedTuple):
    opened: Opened
    renew_at: float
    ends_at: float


class Access:
    """The credentials of one attempt. Operations may run concurrently."""

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
        opened = await self._current()
        try:
            return await operation(opened.secret)
        except Exception as error:
            if meaning(error) is not Meaning.REFRESH:
                raise
        newer = await self._refreshed(opened)
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
                return await self._refreshed(self._good.opened)
            except (CredentialRejected, RefreshFailed):
                if time.time() >= self._good.ends_at:
                    raise  # else the old ones are still good
        return self._good.opened

    async def _refreshed(self, opened: Opened) -> Opened:
        refused = opened.credential_version
        if self._good is not None and self._good.opened.credential_version > refused:
            return self._good.opened  # another operation has refreshed them
        return self._keep(await self._refresher.refresh(self._job, self._refresh_url, refused))

    def _keep(self, opened: Opened) -> Opened:
        now, ends_at = time.time(), expiry_of(opened.secret)
        self._good = _Good(opened, now + EARLY * (ends_at - now), ends_at)
        return opened


def expiry_of(secret: Secret) -> float:
    """Return the credentials' expiry (`expires_at`: seconds or an ISO date) in epoch seconds; infinity without one."""
    try:
        told = secret.reveal_json().get("expires_at")
        if isinstance(told, str):
            return datetime.fromisoformat(told).timestamp()
        return float(told) if told is not None else float("inf")
    except (ValueError, TypeError, AttributeError):
        return float("inf")
