"""Ids of transcoding jobs that can be known again when their job is pruned: UUIDs of version 7 with a mark in them.

The last eight digits are an HMAC of the others and the requester. So whoever was given an id is told that its job is
gone, for ever and without a row kept for it; everybody else is told that there never was one.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from callsheet.engine.ids import new_id
from callsheet.engine.system_secrets import TRANSCODE_IDS, Sealer, system_secret
from callsheet.kernel.intake import IS_UUID

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

MARK_DIGITS = 8  # of hex; 42 random bits are left beside the millisecond


class JobIds:
    """Makes ids and knows its own."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def new(self, requester_id: str) -> str:
        """A fresh id for a requester."""
        head = new_id()[:-MARK_DIGITS]
        return head + self._mark(head, requester_id)

    def was_given(self, job_id: str, requester_id: str) -> bool:
        """Whether this requester was given this id."""
        head, mark = job_id[:-MARK_DIGITS], job_id[-MARK_DIGITS:]
        return bool(IS_UUID(job_id)) and hmac.compare_digest(mark, self._mark(head, requester_id))

    def _mark(self, head: str, requester_id: str) -> str:
        told = f"{head}:{requester_id}".encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, told, hashlib.sha256).hexdigest()[:MARK_DIGITS]


async def ids_of(store: Store, sealer: Sealer | None = None) -> JobIds:
    """Those of all processes on a store: the secret is made by the first that asks; raises SecretSealed."""
    return JobIds(await system_secret(store, TRANSCODE_IDS, sealer))
