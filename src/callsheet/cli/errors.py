"""How commands report errors: one line on stderr and an exit code, never a traceback, never a password."""

from __future__ import annotations

import re
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit

import click

from callsheet.kernel.errors import CallsheetError, InvalidInput

WRONG_INPUT = 2
DRAINED = 3  # exit code of a worker process that a server drained: its supervisor does not start it again
KEY_ADVICE = (
    "export CALLSHEET_API_KEY=…, as the first `callsheet up` showed it; `callsheet keys create NAME` makes another"
)
HIDDEN = "***"
# Up to the last "@" of a word, since a password may hold any character; a port with a path behind it is none.
_CREDENTIALS = re.compile(r"(://[^\s/:@]*):(?!\d+[/\s])\S*@")
_SECRET = re.compile(r"pass|secret|token|auth|key", re.IGNORECASE)


class CommandFailed(click.ClickException):
    """An error that is printed as one line. The exit code is 1."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(without_passwords(message).split()))

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error as `callsheet: …`."""
        click.echo(f"callsheet: {self.message}", err=True, file=file)


class WrongInput(CommandFailed):
    """The command's arguments are invalid. The exit code is 2, as for click's own errors."""

    exit_code = WRONG_INPUT


def as_command_error(error: CallsheetError) -> CommandFailed:
    """Return the library's error as an error of the command line."""
    if error.code == "unauthorized":
        return CommandFailed(f"{error}; {KEY_ADVICE}")
    return WrongInput(str(error)) if isinstance(error, InvalidInput) else CommandFailed(str(error))


def without_password(url: str) -> str:
    """Return a URL without its password, and without the values of options whose names sound secret."""
    head, mark, query = url.partition("?")
    if mark and "@" not in head and "@" in query and _CREDENTIALS.search(url):
        return without_passwords(url)  # the question mark belongs to the password
    return without_passwords(head) + mark + "&".join(_public(option) for option in query.split("&"))


def without_passwords(text: str) -> str:
    """Return a text without the passwords of the URLs in it."""
    return _CREDENTIALS.sub(rf"\1:{HIDDEN}@", text) if "://" in text else text


def _public(option: str) -> str:
    name, equals, value = option.partition("=")
    if equals and _SECRET.search(name):
        return f"{name}={HIDDEN}"
    plain = unquote(value)
    return f"{name}={quote(without_password(plain), safe=':/@*')}" if "://" in plain else option


def check_url(url: str) -> None:
    """Raise InvalidInput if a URL cannot be read. The message contains nothing of the URL."""
    try:
        _ = urlsplit(url).port
    except ValueError:
        advice = "write special characters of its password as %XX, a slash as %2F"
        raise InvalidInput(f"the database URL cannot be read; {advice}") from None
