"""Ids of transcoding jobs, recognizable even after their job was pruned: UUIDs of version 7 with a mark.

The mark, the last eight digits, is an HMAC of the other digits and the requester. Without any stored row, the
requester of a pruned job gets `job_gone` for ever, and other requesters get `job_not_found`.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from callsheet.engine.ids import new_id
from callsheet.engine.system_secrets import TRANSCODE_IDS, Sealer, system_secret
from callsheet.kernel.new_jobs import IS_UUID

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

MARK_DIGITS = 8  # of hex; 42 random bits are left beside the millisecond


class JobIds:
    """Makes job ids and recognizes them."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def new(self, requester_id: str) -> str:
        """Return a new id for a requester's job."""
        head = new_id()[:-MARK_DIGITS]
        return head + self._mark(head, requester_id)

    def was_given(self, job_id: str, requester_id: str) -> bool:
        """Return True if this id was made for this requester's job."""
        head, mark = job_id[:-MARK_DIGITS], job_id[-MARK_DIGITS:]
        return bool(IS_UUID(job_id)) and hmac.compare_digest(mark, self._mark(head, requester_id))

    def _mark(self, head: str, requester_id: str) -> str:
        text = f"{head}:{requester_id}".encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[:MARK_DIGITS]


async def ids_of(store: Store, sealer: Sealer | None = None) -> JobIds:
    """Return the store's id maker; all processes share its secret, created on first use. Raises SecretSealed."""
    return JobIds(await system_secret(store, TRANSCODE_IDS, sealer))
