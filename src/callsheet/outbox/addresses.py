"""The IP addresses that callbacks may connect to: public internet addresses, plus networks allowed by an operator."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

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


def may_reach(address: Address, allowed: Iterable[Network]) -> bool:
    """Return whether a callback may connect to an address; `allowed` are extra networks set by an operator."""
    if getattr(address, "scope_id", None) is not None:
        return False
    inner = plain(address)
    return is_public(address) or any(inner.version == n.version and inner in n for n in allowed)
