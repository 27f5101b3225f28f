"""`callsheet workers`: enrol, list, drain and revoke workers that get their jobs from a server."""

from __future__ import annotations

import click

from callsheet.api.workers import worker_body, worker_state
from callsheet.engine import Engine
from callsheet.http.problems import Problem
from callsheet.http.worker_registry import Enrolment, Worker, WorkerRegistry
from callsheet.kernel.durations import seconds

from .command_settings import STORE_JSON, STORE_ONLY, WORKERS_DRAIN, WORKERS_ENROLL
from .drawing import escape
from .errors import CommandFailed
from .open_store import record_audit, with_engine
from .options import settings
from .output import console, print_json, span, table


@click.group(
    "workers",
    epilog="""\b
Examples:
  callsheet workers enroll --queues media,default
  callsheet workers enrolments
  callsheet workers list
  callsheet workers drain gpu1-7Tq2bXc9Lm
  callsheet workers revoke gpu1-7Tq2bXc9Lm""",
)
def command() -> None:
    """Enrol, list, drain and revoke workers that get their jobs from a server."""


@command.command(
    "enroll", epilog="\b\nExample:\n  callsheet workers enroll --queues media --tenants acme --expires 10m"
)
@settings(WORKERS_ENROLL)
@with_engine(create=True)
async def enroll(  # noqa: PLR0913 - each is a flag
    engine: Engine,
    *,
    queues: tuple[str, ...] | None,
    tenants: tuple[str, ...] | None,
    expires: str,
    uses: int,
    token_life: str,
    json: bool,
) -> None:
    """Create an enrolment token and print it. It is printed once: the store has only its hash.

    A worker sends it to POST /internal/worker/enroll and gets a token of its own.
    """
    text, enrolment = await WorkerRegistry(engine.store).invite(
        queues=queues,
        tenants=tenants,
        ttl_s=seconds(expires),
        uses=uses,
        token_life_s=max(1, round(seconds(token_life))),
    )
    await record_audit(engine.store, "enrolment.created", target=enrolment.enrolment_id, uses=uses)
    if json:
        print_json({"enrolment_token": text, **enrolment._asdict()})
    else:
        click.echo(text)
        click.echo(f"good for {uses} and for {expires}: keep it now, it is not shown again", err=True)
        click.echo(f"callsheet workers withdraw {enrolment.enrolment_id} takes it back", err=True)


@command.command("list", epilog="\b\nExample:\n  callsheet workers list --json")
@settings(STORE_JSON)
@with_engine()
async def list_(engine: Engine, *, json: bool) -> None:
    """Show the workers that contacted a server within a week."""
    workers, now = await WorkerRegistry(engine.store).list(), await engine.store.now()
    if json:
        print_json([worker_body(worker, now) for worker in workers])
    elif workers:
        _show(workers, now)
    else:
        click.echo("no workers yet; callsheet workers enroll")


@command.command("drain", epilog="\b\nExamples:\n  callsheet workers drain gpu1-7Tq2bXc9Lm --undo")
@click.argument("worker_id", metavar="ID")
@settings(WORKERS_DRAIN)
@with_engine()
async def drain(engine: Engine, worker_id: str, *, undo: bool) -> None:
    """Let a worker finish its jobs and take no more."""
    try:
        await WorkerRegistry(engine.store).drain(worker_id, drain=not undo)
    except Problem:
        raise _unknown(worker_id) from None
    await record_audit(engine.store, "worker.resumed" if undo else "worker.drained", target=worker_id)
    click.echo(f"worker {worker_id} {'takes jobs again' if undo else 'is drained'}")


@command.command("revoke", epilog="\b\nExample:\n  callsheet workers revoke gpu1-7Tq2bXc9Lm")
@click.argument("worker_id", metavar="ID")
@settings(STORE_ONLY)
@with_engine()
async def revoke(engine: Engine, worker_id: str) -> None:
    """Revoke a worker's token for good. Servers accept it for a few seconds more; its leases run out."""
    try:
        await WorkerRegistry(engine.store).revoke(worker_id)
    except Problem:
        raise _unknown(worker_id) from None
    await record_audit(engine.store, "worker.revoked", target=worker_id)
    click.echo(f"worker {worker_id} is revoked")


@command.command("enrolments", epilog="\b\nExample:\n  callsheet workers enrolments --json")
@settings(STORE_JSON)
@with_engine()
async def list_enrolments(engine: Engine, *, json: bool) -> None:
    """Show the ids of enrolment tokens that can still be used; the tokens themselves are stored nowhere."""
    enrolments, now = await WorkerRegistry(engine.store).enrolments(), await engine.store.now()
    if json:
        print_json([enrolment._asdict() for enrolment in enrolments])
    elif enrolments:
        _show_enrolments(enrolments, now)
    else:
        click.echo("no enrolment token can be used; callsheet workers enroll makes one")


@command.command("withdraw", epilog="\b\nExample:\n  callsheet workers withdraw 7Tq2bXc9Lm")
@click.argument("enrolment_id", metavar="ID")
@settings(STORE_ONLY)
@with_engine()
async def withdraw(engine: Engine, enrolment_id: str) -> None:
    """Revoke an enrolment token. Workers that have enrolled with it stay."""
    if not await WorkerRegistry(engine.store).withdraw(enrolment_id):
        raise CommandFailed(f"no enrolment {enrolment_id}: it is used up and gone, too old, or was taken back")
    await record_audit(engine.store, "enrolment.withdrawn", target=enrolment_id)
    click.echo(f"enrolment {enrolment_id} is taken back")


def _unknown(worker_id: str) -> CommandFailed:
    return CommandFailed(f"no enrolled worker {worker_id}; callsheet workers list shows them")


def _show(workers: list[Worker], now: int) -> None:
    rows = table("worker", "state", "queues", "tenants", "labels", "runs", "seen", "version")
    for worker in workers:
        rows.add_row(
            escape(worker.worker_id),
            worker_state(worker, now),
            _names(worker.queues),
            _names(worker.tenants),
            escape(" ".join(worker.labels)),
            str(worker.running),
            "never" if worker.last_seen_at is None else f"{span(now - worker.last_seen_at)} ago",
            escape(worker.version),
        )
    console().print(rows)


def _show_enrolments(enrolments: list[Enrolment], now: int) -> None:
    rows = table("enrolment", "queues", "tenants", "uses left", "made", "ends in")
    for each in enrolments:
        age, ends = f"{span(now - each.created_at)} ago", span(each.expires_at - now)
        rows.add_row(each.enrolment_id, _names(each.queues), _names(each.tenants), str(each.uses_left), age, ends)
    console().print(rows)


def _names(limits: tuple[str, ...] | None) -> str:
    """Return the queues or tenants that a worker is limited to, as text."""
    return "all" if limits is None else escape(", ".join(limits))
