"""The command line. Each command is a thin layer over the engine; its module is imported when the command runs."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import NamedTuple

import click

from callsheet import __version__
from callsheet.extras import needed_for
from callsheet.kernel.errors import CallsheetError, MissingExtra

from .errors import as_command_error


class Entry(NamedTuple):
    """A command's place, `module:attribute`, and its line in the help: printing the help imports no command."""

    place: str
    help: str


SECTIONS = {
    "Run it": {
        "up": Entry("serve:up_command", "Serve the HTTP API and run jobs, in one process, on one store."),
        "serve": Entry("serve:serve_command", "Serve the HTTP API on a store, without a worker."),
        "worker": Entry("worker:command", "Run the tasks of an app until stopped."),
        "demo": Entry(
            "demo:command", "Show the features: compose a video from a script, read, search, cut and transcode it."
        ),
    },
    "Jobs": {
        "enqueue": Entry("enqueue:command", "Create a job."),
        "jobs": Entry("jobs:command", "List, show, watch, cancel and retry jobs; pause queues."),
        "tasks": Entry("schedules:tasks", "List the tasks that workers serve, with their arguments."),
        "schedules": Entry("schedules:schedules", "List, make, pause, run and delete schedules."),
        "dead-letters": Entry(
            "dead_letters:command", "List, show, replay and purge jobs that failed in all their attempts."
        ),
    },
    "Videos": {
        "video": Entry("video:command", "Add videos, search the text on screen in them, cut clips."),
        "scan": Entry("scan:command", "Find new videos in the object storage and create the job of each, once."),
    },
    "Talk to a server": {
        "ask": Entry("remote_jobs:ask_command", "Ask a model on a server and stream its answer."),
        "watch": Entry("remote_jobs:watch_command", "Show a job's events, past and live, until its end."),
        "testkit": Entry("testkit:command", "Check a worker, or a control plane, against the protocol."),
    },
    "Look after a store": {
        "migrate": Entry("migrate:command", "Bring the store's schema to this program's version."),
        "doctor": Entry(
            "doctor:command",
            "Check this machine, the store, the transport, the files and the keys, with advice for each problem.",
        ),
        "keys": Entry("tenants:keys", "Create, list and revoke API keys."),
        "quotas": Entry("tenants:quotas", "Show and set the limits of each tenant."),
        "audit": Entry(
            "tenants:audit",
            "Show who did what, newest first: keys, sign-ins, workers, replays, purges, refused requests.",
        ),
        "workers": Entry("workers:command", "Enrol, list, drain and revoke workers that get their jobs from a server."),
        "vault": Entry("vault:command", "Rotate the keys that encrypt stored secrets, and re-encrypt the secrets."),
        "webhooks": Entry(
            "webhooks:command",
            "List, show and replay deliveries; create, rotate, disable and enable endpoints.",
        ),
    },
}
ENTRIES = {name: entry for entries in SECTIONS.values() for name, entry in entries.items()}


class Commands(click.Group):
    """The commands by section. Errors of the library become one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return all names, in the order of the sections."""
        return list(ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command's module and return the command."""
        if cmd_name not in ENTRIES:
            return None
        module, _, attribute = ENTRIES[cmd_name].place.partition(":")
        gc.disable()  # an import leaves no garbage, and looking for it is a fifth of the time a server takes to start
        try:
            with needed_for(f"callsheet {cmd_name}"):
                command: click.Command = getattr(import_module(f"{__name__}.{module}"), attribute)
        except MissingExtra as error:
            raise as_command_error(error) from error
        finally:
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write one list for each section."""
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, entry.help) for name, entry in entries.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except CallsheetError as error:
            raise as_command_error(error) from error


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  callsheet up
  callsheet worker shop:app --concurrency 20
  callsheet enqueue shop:app resize '{"url": "https://example.org/cat.png"}' --wait
  callsheet jobs watch
  callsheet doctor

Every flag is an environment variable too: --log-level is CALLSHEET_LOG_LEVEL.""",
)
@click.version_option(__version__, prog_name="callsheet")
def cli() -> None:
    """Callsheet: a durable job system for long, heavy work."""


def main() -> None:
    """Run the command line."""
    cli()
