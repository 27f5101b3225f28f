"""Server-side request forgery (SSRF) guard: validates URLs, and resolves host names to allowed addresses only.

Allowed are addresses of the public internet, and networks that an operator adds.

Each attempt resolves the host name once, checks every address, and connects to a checked address, so later DNS changes
have no effect. `guarded_client.py` and `guarded_proxy.py` make the connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from callsheet.kernel.errors import CallsheetError, InvalidInput

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
HTTPS_PORTS = frozenset({443, 8443})
HTTP_PORTS = frozenset({80, 8080})
MAX_URL = 2_048
MAX_ADDRESSES = 16
IS_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})").fullmatch
IS_VISIBLE = re.compile(r"[!-~]+").fullmatch
RESOLVERS = 32  # a silent name server blocks a thread for about ten seconds

# Listed here because `is_global` differs between Python versions and does not cover metadata services.
NOT_PUBLIC = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata service
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's host agent, reachable from its machines only
        "169.254.0.0/16",  # link-local; metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata service
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
UNICAST = ipaddress.ip_network("2000::/3")  # the allocated part of IPv6
NOT_PUBLIC_6 = tuple(
    ipaddress.ip_network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: any IPv4 address inside
        "2620:4f:8000::/48",
        "3fff::/20",  # documentation
    )
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")
MAPPED = ipaddress.ip_network("::ffff:0:0/96")

MAX_PORT = 65_535


class InvalidTarget(InvalidInput):
    """The URL is not allowed for callbacks, independent of name resolution."""

    code = "invalid_target"


class BlockedTarget(CallsheetError):
    """The host name resolves to a forbidden address, or to no address."""

    code = "blocked_target"


class Target(NamedTuple):
    """A validated URL, split into its components."""

    url: str
    tls: bool
    host: str
    port: int
    path: str
    authority: str


class Rules(NamedTuple):
    """The operator's settings for targets. `networks` are allowed beside public addresses; `any_port` is for tests."""

    http: bool = False
    networks: tuple[Network, ...] = ()
    ports: frozenset[int] | None = None
    any_port: bool = False

    def allows_port(self, port: int, *, tls: bool) -> bool:
        """Return whether the rules allow a port."""
        return self.any_port or port in (self.ports or (HTTPS_PORTS if tls else HTTP_PORTS))


class StorageRules(NamedTuple):
    """The operator's rules for storages and sources named in requests, separate from the rules for callbacks."""

    rules: Rules


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse networks such as `10.0.0.0/8`; raises InvalidInput."""
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise InvalidInput(f"{error}; write 10.0.0.0/8 or fd00::/8") from None


def plain(address: Address) -> Address:
    """Return the IPv4 address embedded in an IPv6 address (mapped, NAT64); other addresses unchanged."""
    if isinstance(address, ipaddress.IPv6Address) and (address in NAT64 or address in MAPPED):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public internet, outside all special-purpose ranges."""
    if getattr(address, "scope_id", None) is not None:
        return False
    inner = plain(address)
    if isinstance(inner, ipaddress.IPv4Address):
        return not any(inner in network for network in NOT_PUBLIC)
    return inner in UNICAST and not any(inner in network for network in NOT_PUBLIC_6)


def may_reach(address: Address, extra_networks: Iterable[Network]) -> bool:
    """Return whether a callback may connect to an address; `allowed` are extra networks set by an operator."""
    if getattr(address, "scope_id", None) is not None:
        return False
    inner = plain(address)
    return is_public(address) or any(inner.version == n.version and inner in n for n in extra_networks)


@lru_cache(maxsize=1024)
def target_of(url: str, rules: Rules, what: str = "callback") -> Target:
    """Validate and split a URL; raises InvalidTarget with the reason."""
    if len(url) > MAX_URL or not IS_VISIBLE(url) or "\\" in url:
        raise InvalidTarget(f"a {what}'s URL has at most {MAX_URL} visible ASCII characters and no backslash")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidTarget(f"a {what}'s URL cannot be read; write https://host/path") from None
    tls, host = parts.scheme == "https", parts.hostname or ""
    if not tls and not (rules.http and parts.scheme == "http"):
        raise InvalidTarget(f"a {what}'s URL begins with https://" + (" or http://" if rules.http else ""))
    if "@" in parts.netloc:
        raise InvalidTarget(f"a {what}'s URL carries no user and no password")
    literal = _literal(host)
    if literal is None and ("[" in parts.netloc or not IS_HOST(host)):
        raise InvalidTarget(f"a {what}'s URL names a host, without a zone; an IPv6 address stands in brackets")
    if literal is not None and not may_reach(literal, rules.networks):
        raise InvalidTarget(f"{what}s go to public addresses only")
    port = port or (443 if tls else 80)
    if not rules.allows_port(port, tls=tls):
        raise InvalidTarget(f"{what}s do not go to port {port}; use {443 if tls else 80}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(url, tls, host, port, path, parts.netloc)


async def addresses_of(target: Target, rules: Rules, resolve: Resolve) -> list[str]:
    """Resolve a target to checked addresses; raises BlockedTarget if any address is forbidden, or none exists."""
    literal = _literal(target.host)
    texts = [target.host] if literal is not None else list(await resolve(target.host, target.port))
    if not texts:
        raise BlockedTarget("the name has no address")
    addresses = list(dict.fromkeys(texts))
    for text in addresses:
        address = _literal(text)
        if address is None or not _may_reach(address, rules.networks):
            raise BlockedTarget("the name leads to an address that is not public")
    return addresses[:MAX_ADDRESSES]


_may_reach = lru_cache(maxsize=4096)(may_reach)  # pure, and called for every request


def is_same(a: str, b: str) -> bool:
    """Return whether two texts denote the same IP address."""
    return (left := _literal(a)) is not None and left == _literal(b)


class SystemResolver:
    """The system's resolver in its own thread pool, so that slow lookups block neither other names nor the store."""

    def __init__(self, threads: int = RESOLVERS) -> None:
        self._threads = ThreadPoolExecutor(threads, "callsheet-resolve")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Resolve a host to its IPv4 and IPv6 addresses; returns an empty list for an unresolvable name."""
        loop = asyncio.get_running_loop()
        try:
            entries = await loop.run_in_executor(
                self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            )
        except (OSError, UnicodeError):
            return []
        return [str(address[0]) for *_, address in entries]

    def close(self) -> None:
        """Shut down the thread pool without waiting."""
        self._threads.shutdown(wait=False, cancel_futures=True)


@lru_cache(maxsize=4096)
def _literal(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)
class AddressSettings:
    """The settings of a server or worker process that say which addresses its outgoing requests may reach."""

    webhook_http: bool = False
    webhook_networks: Sequence[str] | None = None
    webhook_ports: Sequence[str] | None = None
    storage_http: bool = False
    storage_networks: Sequence[str] | None = None
    storage_ports: Sequence[str] | None = None

    def webhook_rules(self) -> Rules:
        """Return the rules for callbacks; raises InvalidInput."""
        return address_rules(self.webhook_networks, self.webhook_ports, http=self.webhook_http)

    def storage_rules(self) -> Rules:
        """Return the rules for storages and sources named in requests: those of webhooks unless a setting is given."""
        if not (self.storage_http or self.storage_networks or self.storage_ports):
            return self.webhook_rules()
        return address_rules(self.storage_networks, self.storage_ports, http=self.storage_http, prefix="storage")


def address_rules(
    allowed: Sequence[str] | None, ports: Sequence[str] | None, *, http: bool, prefix: str = "webhook"
) -> Rules:
    """Return the rules that settings such as `--webhook-networks` and `--webhook-ports` give; raises InvalidInput."""
    wrong = [port for port in ports or () if not port.isdecimal() or not 0 < int(port) <= MAX_PORT]
    if wrong:
        raise InvalidInput(f"{wrong[0]!r} is no port; write --{prefix}-ports 443,9443")
    return Rules(http, networks(allowed or ()), frozenset(map(int, ports)) if ports else None)
