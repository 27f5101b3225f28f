"""Authentication for streams of a job's events, by key or ticket, and the query parameters that these routes share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from . import tickets
from .auth import check
from .door import admit
from .json_text import JsonAnswer
from .keys import Principal
from .problems import Problem
from .site import Site, site_of

ID_LENGTH = 1024  # of an id in a query: far above any real id, yet three oversized ids still fit a request's head
LastEventId = Annotated[str | None, Query(alias="lastEventId", max_length=ID_LENGTH, description="As the header.")]
TicketQuery = Annotated[str | None, Query(max_length=200, description="Instead of a key, for EventSource.")]


async def who_follows(request: Request, ticket: str | None, subject: str, *, client: str | None = None) -> Principal:
    """Return the Principal that opens a stream, by API key or by a ticket for `subject`; raises Problem.

    With `client`, a ticket is bound to its first client, which may use the ticket again.
    """
    if ticket is None:
        return await check(request, "jobs:read")
    site = site_of(request)
    if client is None:
        who = await tickets.redeem(site.engine.store, ticket, subject)
    else:
        who = await tickets.redeem_again(site.engine.store, ticket, subject, client)
    if not await site.holds(who):
        raise Problem("unauthorized", "the key or the session of this ticket is not good any more")
    admit(request.scope, who.key_id)
    return who


async def ticket_of(site: Site, who: Principal, subject: str, url: str) -> Response:
    """Return the response with a new ticket for one stream."""
    ticket = await tickets.issue(site.engine.store, who, subject)
    return JsonAnswer({"ticket": ticket, "url": f"{url}ticket={ticket}", "expires_in_s": tickets.LIFE_S}, 201)
