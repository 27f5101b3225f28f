"""Headers of proxies in front of this server: the client's address, and whether the client used https.

An address is accepted only from proxies in CALLSHEET_TRUSTED_PROXIES. The use of https is also accepted from this
machine, because its only consequence is a cookie restricted to https.
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
CACHE_SIZE = 4_096


class Proxies:
    """The networks of trusted proxies."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = tuple(networks)
        self._is_trusted = functools.lru_cache(CACHE_SIZE)(self._holds)

    @classmethod
    def of(cls, names: Sequence[str]) -> Proxies:
        """Return the Proxies for networks such as `10.1.0.0/16`; raises InvalidInput."""
        try:
            return cls([ipaddress.ip_network(name) for name in names])
        except ValueError as error:
            raise InvalidInput(f"trusted-proxies takes networks such as 10.1.0.0/16: {error}") from None

    def trust(self, address: str) -> bool:
        """Return whether an address lies in a trusted proxy's network."""
        return bool(self._networks) and self._is_trusted(address)

    def client_of(self, request: Request) -> str:
        """Return the client's address: the nearest address in the proxies' headers that is no trusted proxy's.

        If the connection does not come from a trusted proxy, its own address is returned.
        """
        address = _peer(request)
        if not self.trust(address):
            return address
        for hop in reversed(_addresses(request)):
            if not self.trust(hop):
                return hop if _is_address(hop) else address
        return address

    def is_https(self, request: Request) -> bool:
        """Return whether the client used https, by the connection or by a proxy that is trusted or local."""
        if request.url.scheme == "https":
            return True
        address = _peer(request)
        if not (self.trust(address) or _is_loopback(address)):
            return False
        protocols = [hop.get("proto", "") for hop in _hops(request)]
        plain = request.headers.get("x-forwarded-proto", "")[:LONGEST].split(",")
        return "https" in {word.strip().lower() for word in (*protocols[-1:], plain[-1])}

    def _holds(self, address: str) -> bool:
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            return False
        ipv4 = getattr(ip, "ipv4_mapped", None)
        return any((ipv4 or ip) in network for network in self._networks)


NOBODY = Proxies()


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _addresses(request: Request) -> list[str]:
    """Return the addresses that proxies recorded, nearest proxy last. `Forwarded` overrides X-Forwarded-For."""
    if hops := _hops(request):
        return [_bare(hop.get("for", "")) for hop in hops]
    return [_bare(part) for part in request.headers.get("x-forwarded-for", "")[-LONGEST:].split(",")]


def _hops(request: Request) -> list[dict[str, str]]:
    """Return the hops of `Forwarded: for=1.2.3.4;proto=https, for=…` (RFC 7239)."""
    text = ",".join(request.headers.getlist("forwarded"))[-LONGEST:]
    hops = []
    for hop in text.split(",") if text else ():
        pairs = (pair.partition("=") for pair in hop.split(";"))
        hops.append({name.strip().lower(): value.strip().strip('"') for name, _, value in pairs})
    return hops


def _bare(text: str) -> str:
    """Return an address without port, such as `1.2.3.4:5` or `[::1]:5`."""
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
