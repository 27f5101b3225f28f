"""URLs as they may be shown: with everything but their passwords."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, urlsplit

from callsheet.kernel.errors import InvalidInput

HIDDEN = "***"
# Up to the last "@" of a word, since a password may hold any character; a port with a path behind it is none.
_CREDENTIALS = re.compile(r"(://[^\s/:@]*):(?!\d+[/\s])\S*@")
_SECRET = re.compile(r"pass|secret|token|auth|key", re.IGNORECASE)


def without_password(url: str) -> str:
    """A URL to show; also its options lose what looks like a secret."""
    head, mark, query = url.partition("?")
    if mark and "@" not in head and "@" in query and _CREDENTIALS.search(url):
        return without_passwords(url)  # the question mark belongs to the password
    return without_passwords(head) + mark + "&".join(_shown(option) for option in query.split("&"))


def without_passwords(text: str) -> str:
    """Text in which URLs may stand."""
    return _CREDENTIALS.sub(rf"\1:{HIDDEN}@", text) if "://" in text else text


def _shown(option: str) -> str:
    name, equals, value = option.partition("=")
    if equals and _SECRET.search(name):
        return f"{name}={HIDDEN}"
    plain = unquote(value)
    return f"{name}={quote(without_password(plain), safe=':/@*')}" if "://" in plain else option


def check_url(url: str) -> None:
    """Raise InvalidInput for a URL that cannot be read, without telling what is in it."""
    try:
        _ = urlsplit(url).port
    except ValueError:
        advice = "write special characters of its password as %XX, a slash as %2F"
        raise InvalidInput(f"the database URL cannot be read; {advice}") from None
