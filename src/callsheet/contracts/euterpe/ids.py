"""Ids of transcoding jobs that can be known again when their job is pruned: UUIDs of version 7 with a mark in them.

The last eight digits are an HMAC of the others and the requester. So whoever was given an id is told that its job is
gone, for ever and without a row kept for it; everybody else is told that there never was one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from typing import TYPE_CHECKING

from callsheet.engine.ids import new_id
from callsheet.kernel.errors import DocumentConflict
from callsheet.kernel.intake import IS_UUID
from callsheet.store.protocol import Document

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

KIND, NAME = "transcode", "job-ids"
MARK_DIGITS = 8  # of hex; 42 random bits are left beside the millisecond
SECRET_BYTES = 32


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


async def ids_of(store: Store) -> JobIds:
    """Those of all processes on a store: the secret is made by the first that asks."""
    while True:
        for document in await store.documents(KIND, NAME):
            return JobIds(bytes.fromhex(json.loads(document.body)["secret"]))
        body = json.dumps({"secret": secrets.token_hex(SECRET_BYTES)})
        try:
            await store.put_document(Document(KIND, NAME, body, 0))
        except DocumentConflict:
            continue  # another process was faster: its secret is there now
