"""`callsheet keys`, `quotas` and `audit`: API keys, the limits of tenants, and the log of security-relevant actions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

from callsheet.api.audit import FAMILIES, audit_body
from callsheet.engine import Engine
from callsheet.engine.quotas import Quota, Quotas
from callsheet.engine.stored import STORED_BYTES
from callsheet.http.keys import DEFAULT_SCOPES, ApiKey, ApiKeys
from callsheet.kernel.audit import ACTIONS, AuditEntry
from callsheet.kernel.durations import seconds
from callsheet.kernel.wire import decode
from callsheet.store.audit import AuditQuery

from .command_settings import AUDIT, KEYS_CREATE, QUOTAS_LIST, QUOTAS_SET, STORE_JSON, STORE_ONLY
from .drawing import escape
from .errors import CommandFailed, WrongInput
from .open_store import record_audit, with_engine
from .options import settings
from .output import console, moment, print_json, table


@click.group(
    "keys",
    epilog="""\b
Examples:
  callsheet keys create "Anna's laptop" --requester acme --expires 90d
  callsheet keys list
  callsheet keys revoke 7Tq2bXc9Lm""",
)
def keys() -> None:
    """Create, list and revoke API keys."""


@keys.command(
    "create", epilog="\b\nExample:\n  callsheet keys create ci --requester acme --scope jobs:write --expires 90d"
)
@click.argument("name")
@settings(KEYS_CREATE)
@with_engine(create=True)
async def create(engine: Engine, name: str, **arguments: Any) -> None:
    """Create a key and print it. It is printed once: the store has only its hash.

    A key may use the jobs of its requester, the tenant; a key with the scope `admin` may use all jobs. A worker with
    the scope `worker` gets the jobs of that requester; with `worker:all`, or without a requester, all jobs.
    """
    text, key = await ApiKeys(engine.store).create(
        name,
        requester_id=arguments["requester"] or "",
        scopes=arguments["scope"] or DEFAULT_SCOPES,
        ttl_s=seconds(arguments["expires"]) if arguments["expires"] else None,
        rate=arguments["rate"],
        teams=arguments["team"] or (),
    )
    details = {"name": key.name, "scopes": " ".join(key.scopes)}
    await record_audit(engine.store, "key.created", target=key.key_id, requester_id=key.requester_id, **details)
    if arguments["json"]:
        print_json({"key": text, **key._asdict()})
    else:
        click.echo(text)
        click.echo(f"key {key.key_id}: keep it now, it is not shown again", err=True)


@keys.command("list", epilog="\b\nExample:\n  callsheet keys list --json")
@settings(STORE_JSON)
@with_engine()
async def list_keys(engine: Engine, *, json: bool) -> None:
    """Show all keys, without their secrets."""
    api_keys, now = await ApiKeys(engine.store).list(), await engine.store.now()
    if json:
        print_json([key._asdict() for key in api_keys])
    elif not api_keys:
        click.echo("no keys yet; callsheet keys create NAME")
    else:
        rows = table("id", "name", "requester", "scopes", "made", "state")
        for key in api_keys:
            owner, scopes = escape(key.requester_id) or "–", " ".join(key.scopes)
            rows.add_row(key.key_id, escape(key.name), owner, scopes, _day(key.created_at), _state(key, now))
        console().print(rows)


@keys.command("revoke", epilog="\b\nExample:\n  callsheet keys revoke 7Tq2bXc9Lm")
@click.argument("key_id", metavar="ID")
@settings(STORE_ONLY)
@with_engine()
async def revoke(engine: Engine, key_id: str) -> None:
    """Revoke a key. Servers accept it for half a minute more at most."""
    api_keys = ApiKeys(engine.store)
    owner = next((key.requester_id for key in await api_keys.list() if key.key_id == key_id), "")
    if not await api_keys.revoke(key_id):
        raise CommandFailed(f"no key {key_id}; callsheet keys list shows them")
    await record_audit(engine.store, "key.revoked", target=key_id, requester_id=owner)
    click.echo(f"key {key_id} is revoked")


def _state(key: ApiKey, now: int) -> str:
    if key.revoked_at is not None:
        return f"revoked {_day(key.revoked_at)}"
    if key.expires_at is not None:
        return f"{'expired' if key.expires_at <= now else 'until'} {_day(key.expires_at)}"
    return "good"


def _day(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d}"


class Usage(NamedTuple):
    """A tenant, the limits set for it (`own`), the limits in force, and what it uses."""

    tenant: str
    own: Quota
    limits: Quota
    used: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {**self._asdict(), "own": self.own._asdict(), "limits": self.limits._asdict()}


@click.group(
    "quotas",
    epilog="""\b
Examples:
  callsheet quotas list
  callsheet quotas set acme --queued 1000 --bytes 50000000000
  callsheet quotas reset acme

A tenant without limits of its own has the server's: --quota-queued and the like of callsheet serve.""",
)
def quotas() -> None:
    """Show and set the limits of each tenant."""


@quotas.command("list", epilog="\b\nExample:\n  callsheet quotas list --tenant acme --json")
@settings(QUOTAS_LIST)
@with_engine()
async def list_quotas(engine: Engine, tenant: str | None, *, json: bool) -> None:
    """Show the limits of tenants and what they use. `-` is a default that no server has published yet."""
    limits = Quotas(engine.store, None)
    own = await limits.own()
    names = [tenant] if tenant is not None else await _tenants(engine, own)
    usages = [
        Usage(name, own.get(name, Quota()), _limits(limits, own, name), await limits.used(name)) for name in names
    ]
    if json:
        print_json([usage.as_json() for usage in usages])
    elif not usages:
        click.echo("no tenants yet; callsheet keys create NAME --requester TENANT")
    else:
        rows = table("tenant", *Quota._fields)
        for usage in usages:
            cells = [_cell(usage.used.get(what), limit) for what, limit in usage.limits._asdict().items()]
            rows.add_row(escape(usage.tenant) or "(none)", *cells)
        console().print(rows)


@quotas.command("set", epilog="\b\nExample:\n  callsheet quotas set acme --queued 1000")
@click.argument("tenant")
@settings(QUOTAS_SET)
@with_engine()
async def set_(engine: Engine, tenant: str, **arguments: int | None) -> None:
    """Set limits of TENANT; the other limits stay. 0 means no limit. '' stands for jobs without a tenant.

    Servers apply the change within 5 seconds.
    """
    changes = {name: value for name, value in arguments.items() if value is not None}
    if not changes:
        raise WrongInput("say which limit: --queued, --running, --bytes, --streams, --rate or --uploads")
    quota = await Quotas(engine.store).set(tenant, changes)
    await record_audit(engine.store, "quota.changed", target=tenant, requester_id=tenant, **changes)
    limits = ", ".join(f"{name} {value}" for name, value in quota._asdict().items() if value is not None)
    click.echo(f"{tenant or 'jobs without a tenant'}: {limits}")


@quotas.command("reset", epilog="\b\nExample:\n  callsheet quotas reset acme")
@click.argument("tenant")
@settings(STORE_ONLY)
@with_engine()
async def reset(engine: Engine, tenant: str) -> None:
    """Give TENANT the server's default limits again."""
    if not await Quotas(engine.store).remove(tenant):
        raise CommandFailed(f"{tenant} has no limits of its own; callsheet quotas list shows who has")
    await record_audit(engine.store, "quota.removed", target=tenant, requester_id=tenant)
    click.echo(f"{tenant} has the default limits")


async def _tenants(engine: Engine, own: dict[str, Quota]) -> list[str]:
    owners = {key.requester_id for key in await ApiKeys(engine.store).list()}
    with_files = {document.id for document in await engine.store.documents(STORED_BYTES)}
    return sorted({*own, *owners, *with_files})


def _limits(quotas: Quotas, own: dict[str, Quota], tenant: str) -> Quota:
    """Return the limits in force; a limit is None if it is a server's default and no server has published it."""
    return quotas.limits_of(tenant) if quotas.are_known or not tenant else own.get(tenant, Quota())


def _cell(used: int | None, limit: int | None) -> str:
    text = "-" if limit is None else "any" if limit == 0 else str(limit)
    return text if used is None else f"{used} of {text}"


@click.command(
    "audit",
    epilog="""\b
Examples:
  callsheet audit --tenant acme --since 2026-01-01T00:00:00Z
  callsheet audit --action key. --limit 200
  callsheet audit --actor 7Tq2bXc9Lm --json""",
)
@settings(AUDIT)
@with_engine()
async def audit(engine: Engine, **arguments: Any) -> None:
    """Show who did what, newest first: keys, sign-ins, workers, replays, purges, refused requests."""
    if (action := arguments["action"]) and action not in ACTIONS and action not in FAMILIES:
        raise WrongInput(f"no action {action!r}; there are {', '.join(sorted(FAMILIES))} and {', '.join(ACTIONS)}")
    since, until = (
        None if at is None else round(at.timestamp() * 1000) for at in (arguments["since"], arguments["until"])
    )
    query = AuditQuery(arguments["tenant"], action, arguments["actor"], since, until, arguments["limit"])
    page = await engine.store.audit_find(query)
    if arguments["json"]:
        print_json([{**audit_body(entry), "at": moment(entry.at)} for entry in page.entries])
    elif page.entries:
        _show_entries(page.entries)
    else:
        click.echo("no such entries")
    if page.cursor is not None:
        click.echo(f"there may be more than {arguments['limit']}; ask for them with --limit or --until", err=True)


def _show_entries(entries: list[AuditEntry]) -> None:
    rows = table("at", "action", "outcome", "tenant", "actor", "target", "address", "details")
    for entry in entries:
        details = {name: value for name, value in decode(entry.details).items() if name != "operator"}
        text = " ".join(f"{name}={value}" for name, value in details.items())
        texts = (entry.requester_id, entry.actor, entry.target, entry.address, text)
        rows.add_row(moment(entry.at), entry.action, entry.outcome, *(escape(text) or "–" for text in texts))
    console().print(rows)
