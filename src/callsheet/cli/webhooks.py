"""`callsheet webhooks`: look at deliveries, send them again, and keep endpoints."""

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
from callsheet.outbox import Endpoint, Endpoints
from callsheet.outbox.breaker import Breaker, Destination, troubled
from callsheet.outbox.replay import Selection, find_one, replay_many, replay_one
from callsheet.settings import (
    JOBS_SHOW,
    STORE_ONLY,
    WEBHOOKS_CREATE,
    WEBHOOKS_ENDPOINTS,
    WEBHOOKS_LIST,
    WEBHOOKS_REPLAY,
    WEBHOOKS_ROTATE,
)
from callsheet.store.outbox import OutboxFilter

from .acts import note
from .drawing import escape
from .failures import WrongInput
from .options import settings
from .outgoing import rules_of
from .records import moment, print_json, span
from .stores import opened, run
from .tables import console, table


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
    """List, show and replay deliveries; make, rotate, disable and enable endpoints."""


@command.command("list", epilog="\b\nExample:\n  callsheet webhooks list --status dead_letter --json")
@settings(WEBHOOKS_LIST)
def list_(database_url: str, **given: Any) -> None:
    """Show the newest events that go out, or went."""

    async def work() -> None:
        async with opened(database_url) as engine:
            where = OutboxFilter(given["requester"], given["endpoint"], newest_first=True)
            status = Delivery(given["status"]) if given["status"] else None
            found = await engine.store.outbox_find(
                job_id=given["job"], status=status, limit=given["limit"], where=where
            )
            if given["json"]:
                print_json([delivery_body(event) for event in found])
            elif found:
                _show(found, await engine.store.now())
            else:
                click.echo("no such deliveries")

    run(work())


@command.command("show", epilog="\b\nExample:\n  callsheet webhooks show evt_5f0c2a9b --json")
@click.argument("event_id", metavar="ID")
@settings(JOBS_SHOW)
def show(event_id: str, database_url: str, *, json: bool) -> None:
    """Show one event: its body, the log of its attempts, and the last answer."""

    async def work() -> None:
        async with opened(database_url) as engine:
            body = whole_delivery(await find_one(engine.store, event_id, None))
            if json:
                print_json(body)
                return
            for name, value in body.items():
                if name != "log" and value not in (None, ""):
                    told = moment(value) if name.endswith("_at") else str(value)
                    console().print(f"[bold]{name}[/] {escape(told)}", soft_wrap=True)
            for entry in body["log"]:
                about = " ".join(str(entry[key]) for key in ("code", "timing") if key in entry)
                console().print(f"  attempt {entry.get('attempt')}  {moment(entry.get('at_ms', 0))}  {escape(about)}")

    run(work())


@command.command(
    "replay", epilog="\b\nExamples:\n  callsheet webhooks replay evt_5f0c2a9b\n  callsheet webhooks replay --all"
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@settings(WEBHOOKS_REPLAY)
def replay(ids: tuple[str, ...], database_url: str, **given: Any) -> None:
    """Send events again, with the ids and bodies that they had: those named, or all dead letters of a filter."""
    if bool(ids) == bool(given["all"]):
        raise WrongInput("name the events to send again, or say --all for dead letters")
    if given["all"] and not given["yes"]:
        click.confirm("send all dead letters of this filter again?", abort=True, err=True)

    async def work() -> None:
        async with opened(database_url) as engine:
            for event_id in ids:
                event = await replay_one(engine.store, event_id, given["requester"])
                await note(engine.store, "webhook.replayed", target=event.event_id, requester_id=event.requester_id)
                click.echo(f"{event.event_id} {event.status.value}")
            if given["all"]:
                wanted = Selection(
                    given["requester"], job_id=given["job"], endpoint=given["endpoint"], rate_per_s=given["rate"]
                )
                done = await replay_many(engine.store, wanted)
                await note(engine.store, "webhook.replayed", target="many", replayed=done.replayed)
                click.echo(f"{done.replayed} go out again{'; there are more, say it once more' if done.more else ''}")

    run(work())


@command.command("endpoints", epilog="\b\nExample:\n  callsheet webhooks endpoints --requester acme --json")
@settings(WEBHOOKS_ENDPOINTS)
def endpoints(database_url: str, requester: str | None, *, json: bool) -> None:
    """Show the endpoints and how they do, without their secrets."""

    async def work() -> None:
        async with opened(database_url) as engine:
            found, health = await _endpoints(engine).list(requester), await troubled(engine.store, requester)
            states = [health.get(Destination(e.requester_id, e.endpoint_id), Breaker()) for e in found]
            if json:
                print_json([endpoint_body(e, state) for e, state in zip(found, states, strict=True)])
                return
            rows = table("id", "requester", "url", "state")
            rows.columns[0].min_width = None
            for endpoint, state in zip(found, states, strict=True):
                told = f"disabled ({endpoint.disabled_reason})" if endpoint.disabled_at else state.state.value
                rows.add_row(endpoint.endpoint_id, escape(endpoint.requester_id) or "–", escape(endpoint.url), told)
            console().print(rows) if found else click.echo("no endpoints yet; callsheet webhooks create URL")

    run(work())


@command.command(
    "create", epilog="\b\nExample:\n  callsheet webhooks create https://hooks.example.org/ --requester acme"
)
@click.argument("url")
@settings(WEBHOOKS_CREATE)
def create(url: str, database_url: str, **given: Any) -> None:
    """Make an endpoint and show its secret: once, for it is kept encrypted."""
    rules = rules_of(given["webhook_networks"], given["webhook_ports"], http=given["webhook_http"])

    async def work() -> None:
        async with opened(database_url, must_exist=False) as engine:
            found = Endpoints(engine.store, sealer_from(os.environ), rules)
            made, secret = await found.create(given["requester"] or "", url, given["description"] or "")
            about = {"target": made.endpoint_id, "requester_id": made.requester_id}
            await note(engine.store, "webhook.endpoint_created", **about)
            _tell(made, secret, as_json=given["json"])

    run(work())


@command.command("rotate", epilog="\b\nExample:\n  callsheet webhooks rotate whe_5f0c2a9b7d1e4c3a8b6d --overlap 1h")
@click.argument("endpoint_id", metavar="ID")
@settings(WEBHOOKS_ROTATE)
def rotate(endpoint_id: str, database_url: str, overlap: str, *, json: bool) -> None:
    """Give an endpoint a new secret; the old one signs beside it for a while, 0 ends it at once."""

    async def work() -> None:
        async with opened(database_url) as engine:
            overlap_ms = round(seconds(overlap) * 1000)
            endpoint, secret = await _endpoints(engine).rotate(endpoint_id, None, overlap_ms=overlap_ms)
            await note(engine.store, "webhook.secret_rotated", target=endpoint_id, requester_id=endpoint.requester_id)
            _tell(endpoint, secret, as_json=json)

    run(work())


@command.command("disable", epilog="\b\nExample:\n  callsheet webhooks disable whe_5f0c2a9b7d1e4c3a8b6d")
@click.argument("endpoint_id", metavar="ID")
@settings(STORE_ONLY)
def disable(endpoint_id: str, database_url: str) -> None:
    """Send nothing more to an endpoint; its events become dead letters."""

    async def work() -> None:
        async with opened(database_url) as engine:
            endpoint = await _endpoints(engine).disable(endpoint_id, None, "asked")
            changed = {"target": endpoint_id, "requester_id": endpoint.requester_id}
            await note(engine.store, "webhook.endpoint_changed", **changed, disabled=True)
            click.echo(f"endpoint {endpoint_id} is disabled")

    run(work())


@command.command("enable", epilog="\b\nExample:\n  callsheet webhooks enable whe_5f0c2a9b7d1e4c3a8b6d")
@click.argument("endpoint_id", metavar="ID")
@settings(STORE_ONLY)
def enable(endpoint_id: str, database_url: str) -> None:
    """Send to an endpoint again, also what came while it was disabled."""

    async def work() -> None:
        async with opened(database_url) as engine:
            endpoint = await _endpoints(engine).enable(endpoint_id, None)
            changed = {"target": endpoint_id, "requester_id": endpoint.requester_id}
            await note(engine.store, "webhook.endpoint_changed", **changed, disabled=False)
            wanted = Selection(endpoint.requester_id, endpoint=endpoint_id, reason="endpoint_disabled")
            done = await replay_many(engine.store, wanted)
            click.echo(f"endpoint {endpoint_id} is enabled; {done.replayed} events go out again")

    run(work())


def _endpoints(engine: Engine) -> Endpoints:
    return Endpoints(engine.store, sealer_from(os.environ))


def _tell(endpoint: Endpoint, secret: str, *, as_json: bool) -> None:
    if as_json:
        print_json(endpoint_body(endpoint, Breaker(), secret))
    else:
        click.echo(secret)
        click.echo(f"endpoint {endpoint.endpoint_id}: keep the secret now, it is not shown again", err=True)


def _show(found: list[OutboxEvent], now: int) -> None:
    rows = table("id", "endpoint", "status", "tries", "age", "last")
    rows.columns[0].min_width = None
    for event in found:
        log = delivery_body(event)["log"]
        last = str(log[-1].get("code", "")) if log else ""
        age = span(now - event.created_at)
        cells = (event.event_id, event.endpoint, event.status.value, str(event.attempt_count), age, last)
        rows.add_row(*map(escape, cells))
    console().print(rows)
