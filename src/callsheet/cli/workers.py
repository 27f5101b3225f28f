"""`callsheet workers`: let workers enrol, list them, drain them, and revoke them."""

from __future__ import annotations

import click

from callsheet.api.workers import worker_body, worker_state
from callsheet.http.problems import Problem
from callsheet.http.worker_registry import Enrolment, Worker, WorkerRegistry
from callsheet.kernel.durations import seconds
from callsheet.settings import STORE_ONLY, WORKERS_DRAIN, WORKERS_ENROLL, WORKERS_LIST

from .acts import note
from .drawing import escape
from .failures import Told
from .options import settings
from .records import print_json, span
from .stores import opened, run
from .tables import console, table


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
    """Enrol, list, drain and revoke workers that work over HTTP."""


@command.command(
    "enroll", epilog="\b\nExample:\n  callsheet workers enroll --queues media --tenants acme --expires 10m"
)
@settings(WORKERS_ENROLL)
def enroll(  # noqa: PLR0913 - each is a flag
    database_url: str,
    *,
    queues: tuple[str, ...] | None,
    tenants: tuple[str, ...] | None,
    expires: str,
    uses: int,
    token_life: str,
    json: bool,
) -> None:
    """Make an enrolment token and show it: once, for only its hash is kept.

    A worker sends it to POST /internal/worker/enroll and gets a token of its own.
    """

    async def work() -> None:
        async with opened(database_url, must_exist=False) as engine:
            text, made = await WorkerRegistry(engine.store).invite(
                queues=queues,
                tenants=tenants,
                ttl_s=seconds(expires),
                uses=uses,
                token_life_s=max(1, round(seconds(token_life))),
            )
            await note(engine.store, "enrolment.created", target=made.enrolment_id, uses=uses)
            if json:
                print_json({"enrolment_token": text, **made._asdict()})
            else:
                click.echo(text)
                click.echo(f"good for {uses} and for {expires}: keep it now, it is not shown again", err=True)
                click.echo(f"callsheet workers withdraw {made.enrolment_id} takes it back", err=True)

    run(work())


@command.command("list", epilog="\b\nExample:\n  callsheet workers list --json")
@settings(WORKERS_LIST)
def list_(database_url: str, *, json: bool) -> None:
    """Show the workers that were heard of within a week."""

    async def work() -> None:
        async with opened(database_url) as engine:
            workers, now = await WorkerRegistry(engine.store).list(), await engine.store.now()
            if json:
                print_json([worker_body(worker, now) for worker in workers])
            elif workers:
                _show(workers, now)
            else:
                click.echo("no workers yet; callsheet workers enroll")

    run(work())


@command.command("drain", epilog="\b\nExamples:\n  callsheet workers drain gpu1-7Tq2bXc9Lm --undo")
@click.argument("worker_id", metavar="ID")
@settings(WORKERS_DRAIN)
def drain(worker_id: str, database_url: str, *, undo: bool) -> None:
    """Let a worker finish what it has and take no more."""

    async def work() -> None:
        async with opened(database_url) as engine:
            try:
                await WorkerRegistry(engine.store).drain(worker_id, drain=not undo)
            except Problem:
                raise _unknown(worker_id) from None
            await note(engine.store, "worker.resumed" if undo else "worker.drained", target=worker_id)
            click.echo(f"worker {worker_id} {'takes jobs again' if undo else 'is drained'}")

    run(work())


@command.command("revoke", epilog="\b\nExample:\n  callsheet workers revoke gpu1-7Tq2bXc9Lm")
@click.argument("worker_id", metavar="ID")
@settings(STORE_ONLY)
def revoke(worker_id: str, database_url: str) -> None:
    """End a worker for good. Servers let it in for a few seconds more; its leases run out."""

    async def work() -> None:
        async with opened(database_url) as engine:
            try:
                await WorkerRegistry(engine.store).revoke(worker_id)
            except Problem:
                raise _unknown(worker_id) from None
            await note(engine.store, "worker.revoked", target=worker_id)
            click.echo(f"worker {worker_id} is revoked")

    run(work())


@command.command("enrolments", epilog="\b\nExample:\n  callsheet workers enrolments --json")
@settings(WORKERS_LIST)
def enrolments(database_url: str, *, json: bool) -> None:
    """Show the enrolment tokens that can still be used: by their ids, for the tokens are kept nowhere."""

    async def work() -> None:
        async with opened(database_url) as engine:
            rights, now = await WorkerRegistry(engine.store).enrolments(), await engine.store.now()
            if json:
                print_json([right._asdict() for right in rights])
            elif rights:
                _show_enrolments(rights, now)
            else:
                click.echo("no enrolment token can be used; callsheet workers enroll makes one")

    run(work())


@command.command("withdraw", epilog="\b\nExample:\n  callsheet workers withdraw 7Tq2bXc9Lm")
@click.argument("enrolment_id", metavar="ID")
@settings(STORE_ONLY)
def withdraw(enrolment_id: str, database_url: str) -> None:
    """Take an enrolment token back: nobody enrols with it any more. Workers that have enrolled stay."""

    async def work() -> None:
        async with opened(database_url) as engine:
            if not await WorkerRegistry(engine.store).withdraw(enrolment_id):
                raise Told(f"no enrolment {enrolment_id}: it is used up and gone, too old, or was taken back")
            await note(engine.store, "enrolment.withdrawn", target=enrolment_id)
            click.echo(f"enrolment {enrolment_id} is taken back")

    run(work())


def _unknown(worker_id: str) -> Told:
    return Told(f"no enrolled worker {worker_id}; callsheet workers list shows them")


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


def _show_enrolments(rights: list[Enrolment], now: int) -> None:
    rows = table("enrolment", "queues", "tenants", "uses left", "made", "ends in")
    for right in rights:
        made, ends = f"{span(now - right.created_at)} ago", span(right.expires_at - now)
        rows.add_row(right.enrolment_id, _names(right.queues), _names(right.tenants), str(right.uses_left), made, ends)
    console().print(rows)


def _names(bound: tuple[str, ...] | None) -> str:
    """What a worker is bound to, for a table."""
    return "all" if bound is None else escape(", ".join(bound))
