"""`callsheet audit`: show security-relevant acts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from callsheet.api.audit import FAMILIES, audit_body
from callsheet.kernel.audit import ACTIONS, AuditEntry
from callsheet.kernel.wire import decode
from callsheet.settings import AUDIT
from callsheet.store.audit import AuditQuery

from .drawing import escape
from .failures import WrongInput
from .options import settings
from .records import moment, print_json
from .stores import opened, run
from .tables import console, table


@click.command(
    "audit",
    epilog="""\b
Examples:
  callsheet audit --tenant acme --since 2026-01-01T00:00:00Z
  callsheet audit --action key. --limit 200
  callsheet audit --actor 7Tq2bXc9Lm --json""",
)
@settings(AUDIT)
def command(database_url: str, **given: Any) -> None:
    """Show who did what: keys, sign-ins, workers, replays, purges, refusals. The newest are first."""
    if (action := given["action"]) and action not in ACTIONS and action not in FAMILIES:
        raise WrongInput(f"no action {action!r}; there are {', '.join(sorted(FAMILIES))} and {', '.join(ACTIONS)}")

    async def work() -> None:
        async with opened(database_url) as engine:
            page = await engine.store.audit_find(_query(given))
            if given["json"]:
                print_json([{**audit_body(entry), "at": moment(entry.at)} for entry in page.entries])
            elif page.entries:
                _show(page.entries)
            else:
                click.echo("no such acts")
            if page.cursor is not None:
                click.echo(f"there may be more than {given['limit']}; ask for them with --limit or --until", err=True)

    run(work())


def _query(given: dict[str, Any]) -> AuditQuery:
    since, until = (_ms(given[name]) for name in ("since", "until"))
    return AuditQuery(given["tenant"], given["action"], given["actor"], since, until, given["limit"])


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)


def _show(entries: list[AuditEntry]) -> None:
    rows = table("at", "action", "outcome", "tenant", "actor", "target", "address", "details")
    for entry in entries:
        details = {name: value for name, value in decode(entry.details).items() if name != "operator"}
        told = " ".join(f"{name}={value}" for name, value in details.items())
        texts = (entry.requester_id, entry.actor, entry.target, entry.address, told)
        rows.add_row(moment(entry.at), entry.action, entry.outcome, *(escape(text) or "–" for text in texts))
    console().print(rows)
