"""`callsheet quotas`: show what tenants may have and use, and set others for one."""

from __future__ import annotations

import click
from rich.markup import escape

from callsheet.engine import Engine
from callsheet.engine.quotas import STORED, Quota, Quotas
from callsheet.http.keys import ApiKeys
from callsheet.settings import QUOTAS_LIST, QUOTAS_SET, STORE_ONLY

from .acts import note
from .failures import Told, WrongInput
from .options import settings
from .records import print_json
from .stores import opened, run
from .tables import console, table

MOST_COUNTED = 1_000_000


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
    """Show the limits that were set for tenants, and what they use. `-` is the server's default."""

    async def work() -> None:
        async with opened(database_url) as engine:
            own = await Quotas(engine.store).own()
            names = [tenant] if tenant is not None else await _tenants(engine, own)
            found = [(name, own.get(name, Quota()), await _used(engine, name)) for name in names]
            if json:
                print_json([{"tenant": name, "own": quota._asdict(), "used": used} for name, quota, used in found])
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
        raise WrongInput("say which limit: --queued, --running, --bytes, --streams or --rate")

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
    stored = {document.id for document in await engine.store.documents(STORED)}
    return sorted({*own, *keys, *stored})


async def _used(engine: Engine, tenant: str) -> dict[str, int]:
    (queued,) = await engine.store.queued_of([tenant], most=MOST_COUNTED)
    running = sum(load.running for load in await engine.store.load(tenant))
    return {"queued": queued, "running": running, "bytes": await Quotas(engine.store).stored(tenant)}


def _show(found: list[tuple[str, Quota, dict[str, int]]]) -> None:
    rows = table("tenant", *Quota._fields)
    for name, quota, used in found:
        cells = [_cell(used.get(what), limit) for what, limit in quota._asdict().items()]
        rows.add_row(escape(name) or "(none)", *cells)
    console().print(rows)


def _cell(used: int | None, limit: int | None) -> str:
    told = "-" if limit is None else "any" if limit == 0 else str(limit)
    return told if used is None else f"{used} of {told}"
