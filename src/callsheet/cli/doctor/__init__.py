"""`callsheet doctor`: prints one line for each thing that can be wrong, with advice."""

from __future__ import annotations

import os

import click

from callsheet.cli.command_settings import DOCTOR
from callsheet.cli.open_store import run
from callsheet.cli.options import settings
from callsheet.cli.output import print_json
from callsheet.settings import contract_objects_url

from .connections import check_objects, check_store, check_transport
from .findings import Finding, Mark
from .machine import check_keys, check_machine

COLORS = {Mark.GOOD: "green", Mark.WARNING: "yellow", Mark.BAD: "red"}
WORDS = {Mark.GOOD: "good", Mark.WARNING: "warning", Mark.BAD: "bad"}


@click.command(
    "doctor",
    epilog="""\b
Examples:
  callsheet doctor
  callsheet doctor --database-url postgresql://app@db.example.org/app --json

✓ is good, ! is worth a look, ✗ is broken. The exit code is 1 if something is broken.""",
)
@settings(DOCTOR)
def command(database_url: str, redis_url: str | None, objects_url: str | None, *, json: bool) -> None:
    """Check this machine, the store, the transport, the files and the keys, with advice for each problem."""
    findings = run(_check_all(database_url, redis_url, objects_url or contract_objects_url(os.environ)))
    if json:
        print_json([{**finding._asdict(), "mark": WORDS[finding.mark]} for finding in findings])
    else:
        for finding in findings:
            click.echo(_line(finding))
    if any(finding.mark is Mark.BAD for finding in findings):
        raise SystemExit(1)


async def _check_all(database_url: str, redis_url: str | None, objects_url: str) -> list[Finding]:
    findings = [
        *await check_store(database_url),
        *await check_transport(database_url, redis_url),
        *await check_objects(objects_url),
        *await check_keys(database_url),
        *check_machine(),
    ]
    return [finding.to_show() for finding in findings]


def _line(finding: Finding) -> str:
    mark = click.style(finding.mark.value, fg=COLORS[finding.mark])
    advice = f" → {finding.advice}" if finding.advice else ""
    return f"{mark} {finding.name}: {finding.text}{advice}"
