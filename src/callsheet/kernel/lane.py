"""The names of lanes: parts of a queue, by the labels that jobs need and the tenants that own them.

A job that needs labels stands in `queue+label+label`, a tenant's job in a fair queue in `queue@tenant`; both in
`queue+label@tenant`. The tenant is percent-encoded, so that no tenant's name can spell another tenant's lane.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

OF_TENANT = "@"
PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
ESCAPES = re.compile(rb"%([0-9A-Fa-f]{2})")


class Lane(NamedTuple):
    """A lane's name, split into queue, labels and tenant."""

    queue: str
    needs: frozenset[str] = frozenset()
    tenant: str = ""


def lane_name(queue: str, needs: Iterable[str] = (), tenant: str = "") -> str:
    """Return the name of a lane; without labels and tenant that is the queue's name."""
    labels = "".join(f"+{label}" for label in sorted(set(needs)))
    return f"{queue}{labels}" + (f"{OF_TENANT}{_quote(tenant)}" if tenant else "")


@lru_cache(maxsize=4096)
def lane_of(name: str) -> Lane:
    """Split the name of a lane into queue, labels and tenant."""
    rest, _, tenant = name.partition(OF_TENANT)
    queue, *needs = rest.split("+")
    return Lane(queue or name, frozenset(needs), _unquote(tenant))


def is_lane_of_another(name: str, requester_id: str) -> bool:
    """Return whether a queue's name is a tenant's lane and the tenant is not this requester."""
    return OF_TENANT in name and (not requester_id or lane_of(name).tenant != requester_id)


def _quote(text: str) -> str:
    return "".join(chr(byte) if byte in PLAIN else f"%{byte:02X}" for byte in text.encode())


def _unquote(text: str) -> str:
    if "%" not in text:
        return text
    return ESCAPES.sub(lambda match: bytes([int(match[1], 16)]), text.encode("utf-8", "replace")).decode(
        "utf-8", "replace"
    )
