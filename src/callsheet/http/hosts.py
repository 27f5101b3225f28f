"""Which names this server answers to, and which pages may change something where nobody is asked for a key.

A page of another origin can make a browser send requests to this machine; a name that its owner lets point here
(DNS rebinding) makes that page's origin look like ours. So the name in `Host` is checked against a list, and `Origin`
against the name.
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
PROBES = frozenset({"/healthz", "/readyz"})  # whoever looks after this process asks by its address
OUR_SITES = frozenset({"same-origin", "none"})  # "none": somebody typed the address


class Hosts(NamedTuple):
    """The names that are answered to, beside those of this machine; None answers to any. `guarded`: no keys are asked.

    A guarded server answers to the names of this machine and of the list alone, and what changes something comes from
    its own pages, or from no page at all.
    """

    names: tuple[str, ...] | None = None
    guarded: bool = False

    @classmethod
    def of(cls, names: Sequence[str] | None, *, guarded: bool) -> Hosts:
        """Those of names like `jobs.example.org`; raises InvalidInput."""
        for name in names or ():
            if not IS_HOST(name):
                raise InvalidInput(f"allowed-hosts: {name!r} is no host; write jobs.example.org, without http://")
        return cls(tuple(_bare(name) for name in names) if names else None, guarded)

    def refusal(self, scope: Scope, hosts: Sequence[bytes]) -> Problem | None:
        """The Problem that a request is refused with, by the values of its `Host` headers; None lets it in."""
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
        if self.guarded and scope["method"] not in SAFE and not is_own_page(_headers(scope), host):
            return Problem(
                "forbidden", "a page of another site may not change anything here; Origin is not this server"
            )
        return None

    @property
    def _lists(self) -> bool:
        return self.guarded or self.names is not None

    def _answers_to(self, host: str) -> bool:
        name = _bare(host)
        return name in (self.names or ()) or _is_of_this_machine(name)


def is_own_page(headers: Mapping[str, str], host: str) -> bool:
    """Whether a page of this host, or a program that is no browser, sent the request."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in OUR_SITES:
        return False
    return origin is None or is_origin(origin, host)


def is_origin(origin: str, host: str) -> bool:
    """Whether the `Origin` header of a request names the same host and port as its `Host` header."""
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _headers(scope: Scope) -> dict[str, str]:
    """The headers by name, those of several lines joined: two origins are nobody's."""
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name, text = raw.decode("latin-1"), value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


@functools.lru_cache(1_024)
def _host(value: bytes) -> str:
    """A `Host` header as text, '' for one that is none."""
    text = value.decode("latin-1")
    return text if IS_HOST(text) else ""


@functools.lru_cache(1_024)
def _bare(host: str) -> str:
    """A host without its port, in lower case, and without the dot of a full name."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


@functools.lru_cache(1_024)
def _is_of_this_machine(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
