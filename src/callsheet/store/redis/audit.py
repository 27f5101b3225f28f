"""The audit log: a stream of all entries, and a stream for each tenant with the same ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.kernel.audit import AuditEntry
from callsheet.store.audit import AuditPage

from .client import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsheet.store.audit import AuditQuery

    from .client import Client

FIELDS = ("requester_id", "action", "actor", "target", "outcome", "address", "request_id", "details")
LOOK = 500


async def append(client: Client, entries: Sequence[AuditEntry], now: int | None) -> list[str]:
    """Write entries and return their ids."""
    flat = [getattr(entry, name) for entry in entries for name in FIELDS]
    return list(await client.run("audit_append", now, *flat)) if entries else []


async def find(client: Client, query: AuditQuery) -> AuditPage:
    """Return a page of entries, newest first; with a sparse filter, read on until the page is full."""
    name = "audit:log" if query.requester_id is None else f"audit:of:{query.requester_id}"
    top = "+" if query.until is None else f"({query.until}-0"
    if (place := query.place) is not None and (query.until is None or place[0] < query.until):
        top = f"({place[0]}-{place[1]}"
    bottom = "-" if query.since is None else f"{query.since}-0"
    entries: list[AuditEntry] = []
    while len(entries) < query.limit:
        with translated():
            rows = await client.redis.xrevrange(client.keys.prefix + name, top, bottom, count=LOOK)
        entries += [entry for entry in map(_entry, rows) if query.matches(entry)]
        if len(rows) < LOOK:
            break
        top = f"({rows[-1][0]}"
    page = entries[: query.limit]
    return AuditPage(page, page[-1].entry_id if len(page) == query.limit else None)


def _entry(row: tuple[str, dict[str, str]]) -> AuditEntry:
    entry_id, fields = row
    return AuditEntry(**fields, at=int(entry_id.partition("-")[0]), entry_id=entry_id)
