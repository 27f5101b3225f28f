"""Checks of `Host` and `Origin`: which names this server answers to, and which pages may change data without a key.

A page of another origin can make a browser send requests to this machine. With DNS rebinding, a name that points to
this machine makes such a page look same-origin. Therefore `Host` is checked against a list of names, and `Origin` is
checked against `Host`.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from callsheet.kernel.errors import InvalidInput

from .problems import Problem

if TYPE_CHECKING:
    from starlette.types import Scope

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
IS_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?").fullmatch
PROBES = frozenset({"/healthz", "/readyz"})  # health checks address the process by IP
OUR_SITES = frozenset({"same-origin", "none"})  # "none": the user typed the address


class Hosts(NamedTuple):
    """The host names that the server answers to. `names` None: any name. `guarded`: the server requires no keys.

    A guarded server answers only to names of this machine and of the list. It accepts changes only from its own pages,
    or from clients that are not browsers.
    """

    names: tuple[str, ...] | None = None
    keyless: bool = False

    @classmethod
    def of(cls, names: Sequence[str] | None, *, keyless: bool) -> Hosts:
        """Return the Hosts for names such as `jobs.example.org`; raises InvalidInput."""
        for name in names or ():
            if not IS_HOST(name):
                raise InvalidInput(f"allowed-hosts: {name!r} is no host; write jobs.example.org, without http://")
        return cls(tuple(_bare(name) for name in names) if names else None, keyless)

    def refusal(self, scope: Scope, hosts: Sequence[bytes]) -> Problem | None:
        """Return the Problem that a request is refused with, by its `Host` header values; None lets the request in."""
        if len(hosts) != 1:
            if hosts or scope["http_version"] != "1.0" or self._lists:
                return Problem("bad_request", "send one Host header, with the name of this server")
            return None
        host = _host(hosts[0])
        if not host:
            return Problem("bad_request", "the Host header is no name of a host")
        if self._lists and not self._answers_to(host) and scope["path"] not in PROBES:
            advice = "name it with --allowed-hosts or CALLSHEET_ALLOWED_HOSTS to allow it"
            return Problem("host_not_allowed", f"this server does not answer to the name in Host; {advice}")
        if self.keyless and scope["method"] not in SAFE and not is_own_page(_headers(scope), host):
            return Problem(
                "forbidden", "a page of another site may not change anything here; Origin is not this server"
            )
        return None

    @property
    def _lists(self) -> bool:
        return self.keyless or self.names is not None

    def _answers_to(self, host: str) -> bool:
        name = _bare(host)
        return name in (self.names or ()) or _is_of_this_machine(name)


def is_own_page(headers: Mapping[str, str], host: str) -> bool:
    """Return whether a page of this host, or a program other than a browser, sent the request."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in OUR_SITES:
        return False
    return origin is None or is_origin(origin, host)


def is_origin(origin: str, host: str) -> bool:
    """Return whether an `Origin` header names the same host and port as the `Host` header."""
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers by name. Repeated headers are joined with commas, so that two origins match no host."""
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name, text = raw.decode("latin-1"), value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


@functools.lru_cache(1_024)
def _host(value: bytes) -> str:
    """Return a `Host` header as text, '' if it is malformed."""
    text = value.decode("latin-1")
    return text if IS_HOST(text) else ""


@functools.lru_cache(1_024)
def _bare(host: str) -> str:
    """Return a host name in lower case, without port and trailing dot."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


@functools.lru_cache(1_024)
def _is_of_this_machine(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
