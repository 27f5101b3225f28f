"""Single-use tickets for browsers, valid for a minute: EventSource cannot send a key, and no key may stand in a URL.

EventSource reconnects automatically with the same URL. A stream that allows this binds a ticket to its first client,
which may use the ticket again until it has been away for RETURN_S.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import secrets
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from callsheet.kernel.errors import DocumentConflict
from callsheet.store.protocol import Document

from .auth import check
from .connections import admit
from .json_bodies import JsonAnswer
from .keys import Principal
from .problems import Problem
from .sessions import is_good
from .state import ServerState, state_of

if TYPE_CHECKING:
    from callsheet.store.protocol import Store

KIND = "sse_ticket"
LIFE_S = 60
RETURN_S = 900  # since a client's last connection; a server ends each connection within 600 s
TRIES = 5
SWEEP = 0.02  # share of new tickets that also delete expired unused tickets


async def issue(store: Store, who: Principal, subject: str) -> str:
    """Return a new ticket for one stream, named by path and query, with the caller's rights."""
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
    """Use up a ticket and return its owner's Principal; raises Problem `unauthorized`."""
    documents = await store.documents(KIND, _digest(ticket))
    if documents and await store.delete_document(KIND, _digest(ticket)):  # of two requests, one deletes the ticket
        body = json.loads(documents[0].body)
        fits = body["subject"] == subject and "client" not in body
        if fits and is_good(body["expires_at"], await store.now(), LIFE_S):
            return _principal(body)
    raise _invalid_ticket()


async def redeem_again(store: Store, ticket: str, subject: str, client: str) -> Principal:
    """Return the Principal of a ticket's owner, and bind the ticket to its first client; raises Problem `unauthorized`.

    The same client may use the ticket again, other clients are refused.
    """
    for _ in range(TRIES):
        documents = await store.documents(KIND, _digest(ticket))
        body, now = json.loads(documents[0].body) if documents else {}, await store.now()
        if body.get("subject") != subject or not is_good(body["expires_at"], now, _life_s(body)):
            break
        if body.setdefault("client", _digest(client)) != _digest(client):
            break
        body["expires_at"] = now + RETURN_S * 1000
        with contextlib.suppress(DocumentConflict):  # a concurrent connection changed the ticket: read it again
            await store.put_document(documents[0]._replace(body=json.dumps(body)))
            return _principal(body)
    raise _invalid_ticket()


def window_of(ticket: str) -> str:
    """Return a name shared by all connections with one ticket, which does not reveal the ticket."""
    return _digest(ticket)


def _principal(body: dict[str, Any]) -> Principal:
    who = Principal(body["key_id"], body["requester_id"], frozenset(body["scopes"]))
    return who._replace(session_id=body.get("session_id", ""))


def _life_s(body: dict[str, Any]) -> int:
    """Return a ticket's lifetime in seconds: RETURN_S if it is bound to a client, else LIFE_S."""
    return RETURN_S if "client" in body else LIFE_S


def _invalid_ticket() -> Problem:
    return Problem("unauthorized", "this ticket is used, too old, or for another stream; ask for a new one")


async def _sweep(store: Store, now: int) -> None:
    for old in await store.documents(KIND):
        if json.loads(old.body)["expires_at"] <= now:
            await store.delete_document(KIND, old.id)


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode("utf-8", "replace")).hexdigest()


ID_LENGTH = 1024  # of an id in a query: far above any real id, yet three oversized ids still fit a request's head
LastEventId = Annotated[str | None, Query(alias="lastEventId", max_length=ID_LENGTH, description="As the header.")]
TicketQuery = Annotated[str | None, Query(max_length=200, description="Instead of a key, for EventSource.")]


async def who_follows(request: Request, ticket: str | None, subject: str, *, client: str | None = None) -> Principal:
    """Return the Principal that opens a stream, by API key or by a ticket for `subject`; raises Problem.

    With `client`, a ticket is bound to its first client, which may use the ticket again.
    """
    if ticket is None:
        return await check(request, "jobs:read")
    state = state_of(request)
    if client is None:
        who = await redeem(state.engine.store, ticket, subject)
    else:
        who = await redeem_again(state.engine.store, ticket, subject, client)
    if not await state.holds(who):
        raise Problem("unauthorized", "the key or the session of this ticket is not good any more")
    admit(request.scope, who.key_id)
    return who


async def ticket_of(state: ServerState, who: Principal, subject: str, url: str) -> Response:
    """Return the response with a new ticket for one stream."""
    ticket = await issue(state.engine.store, who, subject)
    return JsonAnswer({"ticket": ticket, "url": f"{url}ticket={ticket}", "expires_in_s": LIFE_S}, 201)
