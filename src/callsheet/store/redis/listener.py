"""Wake-ups from other processes: one subscription per store, renewed whenever it breaks."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

from callsheet.store.protocol import Hint
from callsheet.store.tasks import end

if TYPE_CHECKING:
    from callsheet.store.hints import Hints

    from .client import Client

POLL_S = 1.0
RECONNECT_S = 0.25
log = logging.getLogger("callsheet.redis")


class Listener:
    """Receive the store's hint channel and pass its hints to the local receivers."""

    def __init__(self, client: Client, hints: Hints) -> None:
        self.live = False
        self._client = client
        self._hints = hints
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start listening; a second call has no effect."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop listening for hints."""
        task, self._task = self._task, None
        if task is not None:
            await end(task)

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001 - whatever it was, listening begins anew
                log.debug("hints are away: %s", error)
                self.live = False
                await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        async with self._client.redis.pubsub() as pubsub:
            try:
                await pubsub.subscribe(self._client.channel)
                while True:
                    message = await pubsub.get_message(timeout=POLL_S)
                    if message is None:
                        continue
                    # Hints sent between two connections are lost: a new subscription stands for a hint for anything.
                    heard = message["type"] == "message"
                    self._hints.send(hint_of(message["data"]) if heard else Hint())
                    self.live = True
            finally:
                self.live = False


def hint_of(text: str) -> Hint:
    """Return the hint in a message; a hint for anything if the message cannot be parsed."""
    try:
        body = json.loads(text)
        return Hint(frozenset(body.get("queues", ())), frozenset(body.get("jobs", ())))
    except (ValueError, AttributeError, TypeError):
        return Hint()
