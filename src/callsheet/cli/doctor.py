"""`callsheet doctor`: one line for each thing that can be wrong, with what to do about it."""

from __future__ import annotations

import os

import click

from callsheet.settings import DOCTOR, contract_objects_url

from .check_keys import check_keys
from .check_machine import check_machine
from .check_objects import check_objects
from .check_store import check_store
from .check_transport import check_transport
from .findings import Finding, Mark
from .options import settings
from .records import print_json
from .stores import run

COLORS = {Mark.GOOD: "green", Mark.WARNING: "yellow", Mark.BAD: "red"}
WORDS = {Mark.GOOD: "good", Mark.WARNING: "warning", Mark.BAD: "bad"}


@click.command(
    "doctor",
    epilog="""\b
Examples:
  callsheet doctor
  callsheet doctor --database-url postgresql://app@db.example.org/app --json

✓ is good, ! is worth a look, ✗ is broken. Ends with 1 when something is broken.""",
)
@settings(DOCTOR)
def command(database_url: str, redis_url: str | None, objects_url: str | None, *, json: bool) -> None:
    """Check this machine, the store, the transport and the keys, and say what to do next."""
    found = [*run(check_store(database_url)), *run(check_transport(database_url, redis_url))]
    objects_url = objects_url or contract_objects_url(os.environ)
    found += [*run(check_objects(objects_url)), *run(check_keys(database_url)), *check_machine()]
    findings = [finding.to_show() for finding in found]
    if json:
        print_json([{**finding._asdict(), "mark": WORDS[finding.mark]} for finding in findings])
    else:
        for finding in findings:
            click.echo(_line(finding))
    if any(finding.mark is Mark.BAD for finding in findings):
        raise SystemExit(1)


def _line(finding: Finding) -> str:
    mark = click.style(finding.mark.value, fg=COLORS[finding.mark])
    advice = f" → {finding.advice}" if finding.advice else ""
    return f"{mark} {finding.name}: {finding.text}{advice}"
