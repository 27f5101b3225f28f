"""The part of the store protocol that is the audit log: entries are appended, found, and one day pruned."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.kernel.audit import AuditEntry


class AuditQuery(NamedTuple):
    """A filter over the audit log, newest first. `requester_id` None is for operators only.

    `action` is one action, or a family of them with a dot at its end (`key.`). `since` is the first millisecond that
    counts, `until` the first that does not. `cursor` is the id of the last entry that was seen.
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
        """The cursor's time and number."""
        at, _, number = (self.cursor or "").partition("-")
        return (int(at), int(number)) if at.isdigit() and number.isdigit() else None

    def matches(self, entry: AuditEntry) -> bool:
        """Whether an entry has the action and the actor that are looked for."""
        wanted = self.action
        same = wanted is None or entry.action == wanted or (wanted.endswith(".") and entry.action.startswith(wanted))
        return same and self.actor in (None, entry.actor)


class AuditPage(NamedTuple):
    """A page of entries and the cursor of the next one, None at the end."""

    entries: list[AuditEntry]
    cursor: str | None


class AuditVerbs(Protocol):
    """Append-only: no verb changes an entry, and only age removes one."""

    async def audit_append(self, entries: Sequence[AuditEntry], *, now: int | None = None) -> list[str]:
        """Write entries, all or none, with the store's time; their ids, which begin with it.

        S39: an entry that was answered for is kept, and stays as it was written.
        """
        ...

    async def audit_find(self, query: AuditQuery) -> AuditPage:
        """Entries by filter, newest first, by pages that do not shift. S40: only the requester's own."""
        ...

    async def audit_prune(self, *, before: int, limit: int) -> int:
        """Delete the oldest entries that were written before a moment; how many. S41: no others."""
        ...
