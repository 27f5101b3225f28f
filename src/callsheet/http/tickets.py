"""Tickets for browsers: EventSource cannot send a key, and no key may stand in a URL. One use, within a minute."""

from __future__ import annotations

import hashlib
import json
import random
import secrets
from typing import TYPE_CHECKING

from callsheet.store.protocol import Document

from .keys import Principal
from .problems import Problem

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

KIND = "sse_ticket"
LIFE_S = 60
SWEEP = 0.02  # the share of new tickets at which old ones that nobody used are removed


async def issue(store: Store, who: Principal, subject: str) -> str:
    """A ticket of somebody for one stream, named by its path and query."""
    now = await store.now()
    if random.random() < SWEEP:  # noqa: S311 - not each time: it reads all that are out
        await _sweep(store, now)
    ticket = secrets.token_urlsafe(32)
    body = {
        "subject": subject,
        "key_id": who.key_id,
        "requester_id": who.requester_id,
        "scopes": sorted(who.scopes),
        "session_id": who.session_id,
        "expires_at": now + LIFE_S * 1000,
    }
    await store.put_document(Document(KIND, _digest(ticket), json.dumps(body), 0))
    return ticket


async def redeem(store: Store, ticket: str, subject: str) -> Principal:
    """Whose ticket this is, once; raises Problem `unauthorized`."""
    found = await store.documents(KIND, _digest(ticket))
    if found and await store.delete_document(KIND, _digest(ticket)):  # of two at once, one deletes it
        body = json.loads(found[0].body)
        if body["subject"] == subject and body["expires_at"] > await store.now():
            who = Principal(body["key_id"], body["requester_id"], frozenset(body["scopes"]))
            return who._replace(session_id=body.get("session_id", ""))
    raise Problem("unauthorized", "this ticket is used, too old, or for another stream; ask for a new one")


async def _sweep(store: Store, now: int) -> None:
    for old in await store.documents(KIND):
        if json.loads(old.body)["expires_at"] <= now:
            await store.delete_document(KIND, old.id)


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode("utf-8", "replace")).hexdigest()
