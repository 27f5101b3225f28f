"""What a proxy in front of this server says of a request: the client's address, and whether it came by https.

Nobody is believed about an address unless CALLSHEET_TRUSTED_PROXIES names its network. That a request came by https is
believed of this machine, too: all that follows is a cookie that is sent by https alone.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callsheet.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from starlette.requests import Request

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LONGEST = 4_096
KNOWN = 4_096


class Proxies:
    """The networks of trusted proxies."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = tuple(networks)
        self._known = functools.lru_cache(KNOWN)(self._holds)

    @classmethod
    def of(cls, names: Sequence[str]) -> Proxies:
        """Those of texts like `10.1.0.0/16`; raises InvalidInput."""
        try:
            return cls([ipaddress.ip_network(name) for name in names])
        except ValueError as error:
            raise InvalidInput(f"trusted-proxies takes networks such as 10.1.0.0/16: {error}") from None

    def trust(self, address: str) -> bool:
        """Whether this address lies in the network of a trusted proxy."""
        return bool(self._networks) and self._known(address)

    def client_of(self, request: Request) -> str:
        """The address of whoever asks: that of the connection, or what trusted proxies say of theirs."""
        address = _peer(request)
        if not self.trust(address):
            return address
        for hop in reversed(_addresses(request)):
            if not self.trust(hop):
                return hop if _is_address(hop) else address
        return address

    def is_https(self, request: Request) -> bool:
        """Whether a request came by https, also as a proxy on this machine or a trusted one says."""
        if request.url.scheme == "https":
            return True
        address = _peer(request)
        if not (self.trust(address) or _is_loopback(address)):
            return False
        protocols = [hop.get("proto", "") for hop in _forwarded(request)]
        plain = request.headers.get("x-forwarded-proto", "")[:LONGEST].split(",")
        return "https" in {word.strip().lower() for word in (*protocols[-1:], plain[-1])}

    def _holds(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        mapped = getattr(parsed, "ipv4_mapped", None)
        return any((mapped or parsed) in network for network in self._networks)


NOBODY = Proxies()


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _addresses(request: Request) -> list[str]:
    """The addresses that proxies wrote down, the nearest last; `Forwarded` counts where both are sent."""
    if hops := _forwarded(request):
        return [_bare(hop.get("for", "")) for hop in hops]
    return [_bare(part) for part in request.headers.get("x-forwarded-for", "")[-LONGEST:].split(",")]


def _forwarded(request: Request) -> list[dict[str, str]]:
    """`Forwarded: for=1.2.3.4;proto=https, for=…` (RFC 7239) as its parts."""
    text = ",".join(request.headers.getlist("forwarded"))[-LONGEST:]
    hops = []
    for hop in text.split(",") if text else ():
        pairs = (pair.partition("=") for pair in hop.split(";"))
        hops.append({name.strip().lower(): value.strip().strip('"') for name, _, value in pairs})
    return hops


def _bare(text: str) -> str:
    """An address without its port: `1.2.3.4:5`, `[::1]:5`."""
    text = text.strip().strip('"')
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_loopback(text: str) -> bool:
    return _is_address(text) and ipaddress.ip_address(text).is_loopback
