"""`callsheet quotas`: show what tenants may have and use, and set others for one."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from callsheet.engine import Engine
from callsheet.engine.quotas import Quota, Quotas
from callsheet.engine.stored import STORED_BYTES
from callsheet.http.keys import ApiKeys
from callsheet.settings import QUOTAS_LIST, QUOTAS_SET, STORE_ONLY

from .acts import note
from .drawing import escape
from .failures import Told, WrongInput
from .options import settings
from .records import print_json
from .stores import opened, run
from .tables import console, table


class Shown(NamedTuple):
    """A tenant, the limits that were set for it, those that hold, and what it uses."""

    tenant: str
    own: Quota
    limits: Quota
    used: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """The same as JSON has it."""
        return {**self._asdict(), "own": self.own._asdict(), "limits": self.limits._asdict()}


@click.group(
    "quotas",
    epilog="""\b
Examples:
  callsheet quotas list
  callsheet quotas set acme --queued 1000 --bytes 50000000000
  callsheet quotas reset acme

A tenant without limits of its own has those of the server: --quota-queued and the like of callsheet serve.""",
)
def command() -> None:
    """Show and set what each tenant may have."""


@command.command("list", epilog="\b\nExample:\n  callsheet quotas list --tenant acme --json")
@settings(QUOTAS_LIST)
def list_(database_url: str, tenant: str | None, *, json: bool) -> None:
    """Show the limits of tenants, and what they use. `-` is a default that no server has told of yet."""

    async def work() -> None:
        async with opened(database_url) as engine:
            quotas = Quotas(engine.store, None)
            own = await quotas.own()
            names = [tenant] if tenant is not None else await _tenants(engine, own)
            found = [
                Shown(name, own.get(name, Quota()), _limits(quotas, own, name), await quotas.used(name))
                for name in names
            ]
            if json:
                print_json([one.as_json() for one in found])
            elif found:
                _show(found)
            else:
                click.echo("no tenants yet; callsheet keys create NAME --requester TENANT")

    run(work())


@command.command("set", epilog="\b\nExample:\n  callsheet quotas set acme --queued 1000")
@click.argument("tenant")
@settings(QUOTAS_SET)
def set_(tenant: str, database_url: str, **given: int | None) -> None:
    """Set limits of TENANT; those that are not given stay. 0 is any number. '' are jobs without a tenant.

    Servers hold to it within 5 seconds.
    """
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise WrongInput("say which limit: --queued, --running, --bytes, --streams, --rate or --uploads")

    async def work() -> None:
        async with opened(database_url) as engine:
            quota = await Quotas(engine.store).set(tenant, changes)
            await note(engine.store, "quota.changed", target=tenant, requester_id=tenant, **changes)
            told = ", ".join(f"{name} {value}" for name, value in quota._asdict().items() if value is not None)
            click.echo(f"{tenant or 'jobs without a tenant'}: {told}")

    run(work())


@command.command("reset", epilog="\b\nExample:\n  callsheet quotas reset acme")
@click.argument("tenant")
@settings(STORE_ONLY)
def reset(tenant: str, database_url: str) -> None:
    """Give TENANT the server's default limits again."""

    async def work() -> None:
        async with opened(database_url) as engine:
            if not await Quotas(engine.store).remove(tenant):
                raise Told(f"{tenant} has no limits of its own; callsheet quotas list shows who has")
            await note(engine.store, "quota.removed", target=tenant, requester_id=tenant)
            click.echo(f"{tenant} has the default limits")

    run(work())


async def _tenants(engine: Engine, own: dict[str, Quota]) -> list[str]:
    keys = {key.requester_id for key in await ApiKeys(engine.store).list()}
    stored = {document.id for document in await engine.store.documents(STORED_BYTES)}
    return sorted({*own, *keys, *stored})


def _limits(quotas: Quotas, own: dict[str, Quota], tenant: str) -> Quota:
    """What holds for a tenant; None where that is a default of servers, and none has told of its own."""
    return quotas.limits_of(tenant) if quotas.are_known or not tenant else own.get(tenant, Quota())


def _show(found: list[Shown]) -> None:
    rows = table("tenant", *Quota._fields)
    for one in found:
        cells = [_cell(one.used.get(what), limit) for what, limit in one.limits._asdict().items()]
        rows.add_row(escape(one.tenant) or "(none)", *cells)
    console().print(rows)


def _cell(used: int | None, limit: int | None) -> str:
    told = "-" if limit is None else "any" if limit == 0 else str(limit)
    return told if used is None else f"{used} of {told}"
