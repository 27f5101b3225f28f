"""The receiver of callbacks, in place of the socket: it answers well, badly, late or not at all."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from callsheet.net.guarded_client import Answer, NoAnswer, Unreachable

if TYPE_CHECKING:
    from .world import World

DEADLINE_S = 5.0
WAYS = ("500", "unreachable", "timeout", "lost")


class Receiver:
    """Stands for a `GuardedClient`. `bodies` has each body by event id, `accepted` those answered with 200."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.bodies: defaultdict[str, set[bytes]] = defaultdict(set)
        self.accepted: set[str] = set()

    def close(self) -> None:
        """Ignore; no connection exists."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Take a callback in, unless the seed has other plans."""
        chance = self._world.faults.chance
        way = chance.choice(WAYS) if chance.random() < self._world.faults.odds.receiver else "200"
        self._world.faults.counts["receiver"] += way != "200"
        await asyncio.sleep(chance.uniform(0.001, 0.2))
        if way == "unreachable":
            raise Unreachable("no connection")
        event_id = json.loads(body)["event_id"]
        self._world.loop.note(f"receive {event_id} {way};")
        if headers["webhook-id"] != event_id:
            self._world.found(f"callback {event_id} came under the id {headers['webhook-id']}")
        self.bodies[event_id].add(body)
        if way == "500":
            return Answer(500, "", b"", 5)
        if way == "200":
            self.accepted.add(event_id)
            return Answer(200, "", b"", 5)
        await asyncio.sleep(DEADLINE_S)
        raise NoAnswer("no whole answer")
