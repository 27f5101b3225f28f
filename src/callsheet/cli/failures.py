"""How the command line tells of errors: one line on stderr and an exit code, never a traceback or a password."""

from __future__ import annotations

from typing import IO, Any

import click

from callsheet.kernel.errors import CallsheetError, InvalidInput

from .passwords import without_passwords

WRONG_INPUT = 2
WHERE_KEYS_ARE = (
    "export CALLSHEET_API_KEY=…, as the first `callsheet up` showed it; `callsheet keys create NAME` makes another"
)
DRAINED = 3  # of a worker process to its supervisor: a server asked it to end, and it is not to be started again


class Told(click.ClickException):
    """An error in one line. Ends with 1."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(without_passwords(message).split()))

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it as `callsheet: …`."""
        click.echo(f"callsheet: {self.message}", err=True, file=file)


class WrongInput(Told):
    """What was asked for cannot be right. Ends with 2, as click's own errors do."""

    exit_code = WRONG_INPUT


def told(error: CallsheetError) -> Told:
    """An error of ours as one line."""
    if error.code == "unauthorized":
        return Told(f"{error}; {WHERE_KEYS_ARE}")
    return WrongInput(str(error)) if isinstance(error, InvalidInput) else Told(str(error))
