"""The audit log's part of the store protocol: append entries, find entries, and prune old entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from callsheet.kernel.audit import AuditEntry


class AuditQuery(NamedTuple):
    """A filter over the audit log, newest first. `requester_id` None is for operators only.

    `action` is one action, or a family of actions if it ends with a dot (`key.`). `since` is the first millisecond
    included, `until` the first millisecond excluded. `cursor` is the id of the last entry on the previous page.
    """

    requester_id: str | None = None
    action: str | None = None
    actor: str | None = None
    since: int | None = None
    until: int | None = None
    limit: int = 50
    cursor: str | None = None

    @property
    def place(self) -> tuple[int, int] | None:
        """The time and number in the cursor; None without a valid cursor."""
        at, _, number = (self.cursor or "").partition("-")
        return (int(at), int(number)) if at.isdigit() and number.isdigit() else None

    def matches(self, entry: AuditEntry) -> bool:
        """Return whether an entry has the query's action and actor."""
        action = self.action
        same = action is None or entry.action == action or (action.endswith(".") and entry.action.startswith(action))
        return same and self.actor in (None, entry.actor)


class AuditPage(NamedTuple):
    """A page of entries and the cursor of the next page, None at the end."""

    entries: list[AuditEntry]
    cursor: str | None


class AuditVerbs(Protocol):
    """The audit log is append-only: no verb changes an entry, and only age removes entries."""

    async def audit_append(self, entries: Sequence[AuditEntry], *, now: int | None = None) -> list[str]:
        """Write entries, all or none, with the store's time; return the entries' ids, which begin with that time.

        S39: an acknowledged entry is kept, and stays as it was written.
        """

    async def audit_find(self, query: AuditQuery) -> AuditPage:
        """Return entries by filter, newest first, in stable pages. S40: a requester sees only its own entries."""

    async def audit_prune(self, *, before: int, limit: int) -> int:
        """Delete the oldest entries written before a moment; return how many. S41: newer entries stay."""
