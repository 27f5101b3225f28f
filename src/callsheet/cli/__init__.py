"""The command line. Each command is a thin face of the engine, in a module of its own, loaded when it is asked for."""

from __future__ import annotations

import gc
from importlib import import_module

import click

from callsheet import __version__
from callsheet.extras import needed_for
from callsheet.kernel.errors import CallsheetError, MissingExtra

from .failures import told

# The sentences stand here, too, because `callsheet --help` need not load a server's modules for them (2 s).
SECTIONS = {
    "Run it": {
        "up": "Serve the HTTP API and run jobs, in one process, on one store.",
        "serve": "Serve the HTTP API on a store, without a worker.",
        "worker": "Run the tasks of an app until stopped.",
        "demo": "Show everything once: a script becomes a video, is read, found, cut, transcoded, and told of.",
    },
    "Jobs": {
        "enqueue": "Create a job.",
        "jobs": "List, show, watch, cancel and retry jobs; pause queues.",
        "dead-letters": "List, show, replay and purge jobs whose attempts are spent.",
    },
    "Videos": {
        "video": "Add videos, search what is on screen in them, cut clips.",
        "scan": "Find new videos in the object storage and start the work on them, once each.",
    },
    "Talk to a server": {
        "ask": "Ask a model on a server and stream its answer.",
        "watch": "Show a job's events, past and live, until its end.",
        "testkit": "Check a worker, or a control plane, against the protocol.",
    },
    "Look after a store": {
        "migrate": "Bring the store's schema to this program's version.",
        "doctor": "Check this machine, the store, the transport and the keys, and say what to do next.",
        "keys": "Make, list and revoke API keys.",
        "quotas": "Show and set what each tenant may have.",
        "audit": "Show who did what: keys, sign-ins, workers, replays, purges, refusals.",
        "workers": "Enrol, list, drain and revoke workers that work over HTTP.",
        "vault": "Rotate the keys of stored credentials, and wrap credentials anew.",
        "webhooks": "List, show and replay deliveries; make, rotate, disable and enable endpoints.",
    },
}


class Commands(click.Group):
    """The commands by section. Errors of ours become one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All names, in the order of the sections."""
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command's module."""
        if cmd_name not in self.list_commands(ctx):
            return None
        gc.disable()  # an import leaves no garbage, and looking for it is a fifth of the time a server takes to start
        try:
            with needed_for(f"callsheet {cmd_name}"):
                command: click.Command = import_module(f"{__name__}.{cmd_name.replace('-', '_')}").command
        except MissingExtra as error:
            raise told(error) from error
        finally:
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """One list for each section."""
        for section, told_of in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(list(told_of.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except CallsheetError as error:
            raise told(error) from error


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
