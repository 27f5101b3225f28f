"""`callsheet webhooks`: show and repeat deliveries, manage endpoints."""

from __future__ import annotations

import os
from typing import Any

import click

from callsheet.api.webhook_deliveries import delivery_body, whole_delivery
from callsheet.api.webhook_endpoints import endpoint_body
from callsheet.app.sealing import sealer_from
from callsheet.engine import Engine
from callsheet.kernel.durations import seconds
from callsheet.kernel.job import Delivery, OutboxEvent
from callsheet.net.guard import address_rules
from callsheet.outbox import Endpoint, Endpoints
from callsheet.outbox.breaker import Breaker, Destination, stored_breakers
from callsheet.outbox.replay import Selection, find_one, replay_many, replay_one
from callsheet.store.outbox import OutboxFilter

from .command_settings import (
    STORE_JSON,
    STORE_ONLY,
    WEBHOOKS_CREATE,
    WEBHOOKS_ENDPOINTS,
    WEBHOOKS_LIST,
    WEBHOOKS_REPLAY,
    WEBHOOKS_ROTATE,
)
from .drawing import escape
from .errors import WrongInput
from .open_store import record_audit, with_engine
from .options import settings
from .output import console, moment, print_json, span, table


@click.group(
    "webhooks",
    epilog="""\b
Examples:
  callsheet webhooks list --status dead_letter
  callsheet webhooks show evt_5f0c2a9b
  callsheet webhooks replay --all --endpoint whe_5f0c2a9b7d1e4c3a8b6d
  callsheet webhooks create https://hooks.example.org/callsheet --requester acme""",
)
def command() -> None:
    """List, show and replay deliveries; create, rotate, disable and enable endpoints."""


@command.command("list", epilog="\b\nExample:\n  callsheet webhooks list --status dead_letter --json")
@settings(WEBHOOKS_LIST)
@with_engine()
async def list_(engine: Engine, **arguments: Any) -> None:
    """Show the newest events with the state of their delivery."""
    where = OutboxFilter(arguments["requester"], arguments["endpoint"], newest_first=True)
    status = Delivery(arguments["status"]) if arguments["status"] else None
    events = await engine.store.outbox_find(
        job_id=arguments["job"], status=status, limit=arguments["limit"], where=where
    )
    if arguments["json"]:
        print_json([delivery_body(event) for event in events])
    elif events:
        _show(events, await engine.store.now())
    else:
        click.echo("no such deliveries")


@command.command("show", epilog="\b\nExample:\n  callsheet webhooks show evt_5f0c2a9b --json")
@click.argument("event_id", metavar="ID")
@settings(STORE_JSON)
@with_engine()
async def show(engine: Engine, event_id: str, *, json: bool) -> None:
    """Show one event: its body, the log of its attempts, and the last response."""
    body = whole_delivery(await find_one(engine.store, event_id, None))
    if json:
        print_json(body)
        return
    for name, value in body.items():
        if name != "log" and value not in (None, ""):
            shown = moment(value) if name.endswith("_at") else str(value)
            console().print(f"[bold]{name}[/] {escape(shown)}", soft_wrap=True)
    for entry in body["log"]:
        details = " ".join(str(entry[key]) for key in ("code", "timing") if key in entry)
        console().print(f"  attempt {entry.get('attempt')}  {moment(entry.get('at_ms', 0))}  {escape(details)}")


@command.command(
    "replay", epilog="\b\nExamples:\n  callsheet webhooks replay evt_5f0c2a9b\n  callsheet webhooks replay --all"
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@settings(WEBHOOKS_REPLAY)
@with_engine()
async def replay(engine: Engine, ids: tuple[str, ...], **arguments: Any) -> None:
    """Send events again with the same ids and bodies: the named events, or with --all the matching dead letters."""
    if bool(ids) == bool(arguments["all"]):
        raise WrongInput("name the events to send again, or say --all for dead letters")
    if arguments["all"] and not arguments["yes"]:
        click.confirm("send all dead letters of this filter again?", abort=True, err=True)
    for event_id in ids:
        event = await replay_one(engine.store, event_id, arguments["requester"])
        await record_audit(engine.store, "webhook.replayed", target=event.event_id, requester_id=event.requester_id)
        click.echo(f"{event.event_id} {event.status.value}")
    if arguments["all"]:
        selection = Selection(
            arguments["requester"],
            job_id=arguments["job"],
            endpoint=arguments["endpoint"],
            rate_per_s=arguments["rate"],
        )
        result = await replay_many(engine.store, selection)
        await record_audit(engine.store, "webhook.replayed", target="many", replayed=result.replayed)
        click.echo(f"{result.replayed} go out again{'; there are more, repeat the command' if result.more else ''}")


@command.command("endpoints", epilog="\b\nExample:\n  callsheet webhooks endpoints --requester acme --json")
@settings(WEBHOOKS_ENDPOINTS)
@with_engine()
async def list_endpoints(engine: Engine, requester: str | None, *, json: bool) -> None:
    """Show the endpoints and their health, without their secrets."""
    endpoints, health = await _endpoints(engine).list(requester), await stored_breakers(engine.store, requester)
    states = [health.get(Destination(e.requester_id, e.endpoint_id), Breaker()) for e in endpoints]
    if json:
        print_json([endpoint_body(e, state) for e, state in zip(endpoints, states, strict=True)])
        return
    rows = table("id", "requester", "url", "state")
    rows.columns[0].min_width = None
    for endpoint, state in zip(endpoints, states, strict=True):
        state_name = f"disabled ({endpoint.disabled_reason})" if endpoint.disabled_at else state.state.value
        owner = escape(endpoint.requester_id) or "–"
        rows.add_row(endpoint.endpoint_id, owner, escape(endpoint.url), state_name)
    console().print(rows) if endpoints else click.echo("no endpoints yet; callsheet webhooks create URL")


@command.command(
    "create", epilog="\b\nExample:\n  callsheet webhooks create https://hooks.example.org/ --requester acme"
)
@click.argument("url")
@settings(WEBHOOKS_CREATE)
@with_engine(create=True)
async def create(engine: Engine, url: str, **arguments: Any) -> None:
    """Create an endpoint and print its secret. It is printed once: the store has it only encrypted."""
    rules = address_rules(arguments["webhook_networks"], arguments["webhook_ports"], http=arguments["webhook_http"])
    endpoints = Endpoints(engine.store, sealer_from(os.environ), rules)
    endpoint, secret = await endpoints.create(arguments["requester"] or "", url, arguments["description"] or "")
    await record_audit(
        engine.store, "webhook.endpoint_created", target=endpoint.endpoint_id, requester_id=endpoint.requester_id
    )
    _print(endpoint, secret, as_json=arguments["json"])


@command.command("rotate", epilog="\b\nExample:\n  callsheet webhooks rotate whe_5f0c2a9b7d1e4c3a8b6d --overlap 1h")
@click.argument("endpoint_id", metavar="ID")
@settings(WEBHOOKS_ROTATE)
@with_engine()
async def rotate(engine: Engine, endpoint_id: str, overlap: str, *, json: bool) -> None:
    """Give an endpoint a new secret. The old one also signs for a while (--overlap); 0 ends it at once."""
    overlap_ms = round(seconds(overlap) * 1000)
    endpoint, secret = await _endpoints(engine).rotate(endpoint_id, None, overlap_ms=overlap_ms)
    await record_audit(engine.store, "webhook.secret_rotated", target=endpoint_id, requester_id=endpoint.requester_id)
    _print(endpoint, secret, as_json=json)


@command.command("disable", epilog="\b\nExample:\n  callsheet webhooks disable whe_5f0c2a9b7d1e4c3a8b6d")
@click.argument("endpoint_id", metavar="ID")
@settings(STORE_ONLY)
@with_engine()
async def disable(engine: Engine, endpoint_id: str) -> None:
    """Send no more events to an endpoint; they become dead letters."""
    endpoint = await _endpoints(engine).disable(endpoint_id, None, "asked")
    await _record_change(engine, endpoint, disabled=True)
    click.echo(f"endpoint {endpoint_id} is disabled")


@command.command("enable", epilog="\b\nExample:\n  callsheet webhooks enable whe_5f0c2a9b7d1e4c3a8b6d")
@click.argument("endpoint_id", metavar="ID")
@settings(STORE_ONLY)
@with_engine()
async def enable(engine: Engine, endpoint_id: str) -> None:
    """Send events to an endpoint again, also the events since it was disabled."""
    endpoint = await _endpoints(engine).enable(endpoint_id, None)
    await _record_change(engine, endpoint, disabled=False)
    selection = Selection(endpoint.requester_id, endpoint=endpoint_id, reason="endpoint_disabled")
    result = await replay_many(engine.store, selection)
    click.echo(f"endpoint {endpoint_id} is enabled; {result.replayed} events go out again")


def _endpoints(engine: Engine) -> Endpoints:
    return Endpoints(engine.store, sealer_from(os.environ))


async def _record_change(engine: Engine, endpoint: Endpoint, *, disabled: bool) -> None:
    target, owner = endpoint.endpoint_id, endpoint.requester_id
    await record_audit(engine.store, "webhook.endpoint_changed", target=target, requester_id=owner, disabled=disabled)


def _print(endpoint: Endpoint, secret: str, *, as_json: bool) -> None:
    if as_json:
        print_json(endpoint_body(endpoint, Breaker(), secret))
    else:
        click.echo(secret)
        click.echo(f"endpoint {endpoint.endpoint_id}: keep the secret now, it is not shown again", err=True)


def _show(events: list[OutboxEvent], now: int) -> None:
    rows = table("id", "endpoint", "status", "tries", "age", "last")
    rows.columns[0].min_width = None
    for event in events:
        log = delivery_body(event)["log"]
        last = str(log[-1].get("code", "")) if log else ""
        age = span(now - event.created_at)
        cells = (event.event_id, event.endpoint, event.status.value, str(event.attempt_count), age, last)
        rows.add_row(*map(escape, cells))
    console().print(rows)
