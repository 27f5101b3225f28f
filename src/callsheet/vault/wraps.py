"""Counts of wraps per KEK: random nonces of 96 bits are safe for 2^32 wraps, and a warning comes at 2^30.

A process reserves 4,096 wraps at a time in the store: a crash counts some wraps too many, and at most one too few.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from opentelemetry import metrics

from callsheet.kernel.errors import DocumentConflict
from callsheet.store.protocol import Document

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

KIND = "vault_wraps"
RESERVED = 4096
WARN_AT = 2**30
log = logging.getLogger("callsheet.vault")
_wraps = metrics.get_meter("callsheet").create_counter(
    "callsheet.vault.wraps", "{wrap}", "Data keys that a KEK has wrapped, by its id"
)


class Wraps:
    """Counts the wraps of this process per KEK, in one store."""

    def __init__(self, store: Store, *, reserved: int = RESERVED, warn_at: int = WARN_AT) -> None:
        self._store = store
        self._reserved = reserved
        self._warn_at = warn_at
        self._left: dict[str, int] = {}

    async def count(self, kek_id: str) -> None:
        """Count one wrap; every 4,096th wrap writes a new reservation to the store."""
        _wraps.add(1, {"kek": kek_id})
        while self._left.get(kek_id, 0) < 1:
            await self._reserve(kek_id)
        self._left[kek_id] -= 1

    async def _reserve(self, kek_id: str) -> None:
        found = await self._store.documents(KIND, kek_id)
        document = found[0] if found else Document(KIND, kek_id, "0", 0)
        total = json.loads(document.body) + self._reserved
        try:
            await self._store.put_document(document._replace(body=json.dumps(total)))
        except DocumentConflict:
            return  # another process reserved at the same moment: look again
        self._left[kek_id] = self._left.get(kek_id, 0) + self._reserved
        if total >= self._warn_at:
            log.warning("key %s has wrapped %d times; rotate: `callsheet vault rotate`, then `rewrap`", kek_id, total)


async def totals(store: Store) -> dict[str, int]:
    """Return an upper bound of each KEK's wraps, over all processes and restarts."""
    return {document.id: json.loads(document.body) for document in await store.documents(KIND)}
