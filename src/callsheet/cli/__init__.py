"""The command line. Each command is a thin face of the engine, in a module of its own, loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module

import click

from callsheet import __version__
from callsheet.kernel.errors import CallsheetError

from .failures import told

SECTIONS = {
    "Run it": ("up", "serve", "worker"),
    "Jobs": ("enqueue", "jobs", "dead-letters"),
    "Talk to a server": ("ask", "watch", "testkit"),
    "Look after a store": ("migrate", "doctor", "keys", "workers", "vault", "webhooks"),
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
        command: click.Command = import_module(f"{__name__}.{cmd_name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One list for each section."""
        for section, names in SECTIONS.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(section):
                formatter.write_dl([(name, command.get_short_help_str(80)) for name, command in found if command])

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
