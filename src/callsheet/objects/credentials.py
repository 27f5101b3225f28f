"""Credentials of a storage, and a holder that replaces credentials while uploads run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from .errors import ClockSkewed, CredentialsExpired, ObjectsError, ObjectsForbidden

log = logging.getLogger("callsheet.objects")
RENEW_AT = 0.8  # of the credentials' lifetime


class Credentials(NamedTuple):
    """Access keys of an S3; temporary keys have a session token."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""
    expires_at_ms: int | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.access_key_id!r}, '***', expires_at_ms={self.expires_at_ms})"


Refresh = Callable[[Credentials], Awaitable[Credentials]]


class HeldCredentials:
    """The credentials in use. `refresh` receives the refused credentials and returns new credentials.

    Concurrent requests with expired credentials share one refresh. With `on_any_refusal` every refusal by the storage
    causes a refresh, not only expiry.
    """

    def __init__(
        self, credentials: Credentials, refresh: Refresh | None = None, *, on_any_refusal: bool = False
    ) -> None:
        self._refresh = refresh
        self._asking = asyncio.Lock()
        self.on_any_refusal = on_any_refusal
        self.replace(credentials)

    def __repr__(self) -> str:
        return f"HeldCredentials({self.current!r})"

    def replace(self, credentials: Credentials) -> None:
        """Replace the credentials, beginning with the next request."""
        self.current = credentials
        self._taken_at_ms = _now_ms()

    async def fresh(self) -> Credentials:
        """Return the current credentials; refreshes them after four fifths of their lifetime."""
        used = self.current
        expires_at_ms = used.expires_at_ms
        if self._refresh is None or expires_at_ms is None:
            return used
        if _now_ms() >= self._taken_at_ms + RENEW_AT * (expires_at_ms - self._taken_at_ms):
            try:
                await self.renew(used)
            except Exception as error:
                if _now_ms() >= expires_at_ms:
                    raise
                log.warning("new credentials could not be had yet: %s", type(error).__name__)
        return self.current

    async def cure(self, error: ObjectsError, used: Credentials) -> bool:
        """Refresh after an error that new credentials may cure; return whether to retry. Raises errors of `refresh`."""
        cured_by = ObjectsForbidden if self.on_any_refusal else CredentialsExpired
        if not isinstance(error, cured_by) or isinstance(error, ClockSkewed):
            return False
        return await self.renew(used)

    async def renew(self, used: Credentials) -> bool:
        """Refresh unless `used` were already replaced; return whether new ones exist. Raises errors of `refresh`."""
        async with self._asking:
            if self.current is used and self._refresh is not None:
                self.replace(await self._refresh(used))
            return self.current is not used


def _now_ms() -> int:
    return round(time.time() * 1000)
