"""The store commits a write, but the answer gets lost: a repeated write is recognised as done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from callsheet.app import Callsheet
from callsheet.kernel.errors import StoreUnavailable
from callsheet.kernel.settlement import Settlement
from callsheet.store.protocol import Settled
from callsheet.worker.context import Context
from tests import stores
from tests.contracts.euterpe.test_callbacks import ASKED, HOOK, told
from tests.store_driver import new_job

STAGES = ["fetching", "processing", "uploading"]


class Losing:
    """A store whose first answer to each kind of move never arrives."""

    def __init__(self, store: Any) -> None:
        self.settle = store.settle
        self.lost: list[str] = []
        self.repeated: list[Settled] = []

    async def __call__(self, settlements: Sequence[Settlement], **more: Any) -> list[Settled]:
        answers: list[Settled] = await self.settle(settlements, **more)
        self.repeated += [answer for answer in answers if answer is Settled.REPEATED]
        for s in settlements:
            word = s.stage or s.status.value
            if (s.stage or s.outcome) and word not in self.lost:
                self.lost.append(word)
                raise StoreUnavailable("the connection broke after the commit")
        return answers


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
async def test_stages_and_ends_whose_answers_were_lost_are_told_once_and_the_attempt_goes_on(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = stores.fresh_url(kind)
    await (await stores.open_store(url)).close()
    app = Callsheet(url)

    @app.task(name="transcode", queue="transcode")
    async def transcode(ctx: Context, status_webhook_url: str, metadata: dict[str, str]) -> dict[str, Any]:
        assert (status_webhook_url, metadata) == (HOOK, {"talk": "1"})
        for stage in STAGES:
            await ctx.stage(stage)
        return {"outputs": []}

    async with app:
        engine = await app.engine()
        losing = Losing(engine.store)
        monkeypatch.setattr(engine.store, "settle", losing)
        (receipt,) = await engine.enqueue(
            [new_job("transcode", payload=ASKED, queue="transcode", contract="euterpe", requester_id="acme")]
        )
        await app.worker(queues=("transcode",)).run(burst=True)
        job = await engine.get(receipt.job_id)
        assert (job.status, job.attempt_count, job.error) == ("succeeded", 1, None)
        assert losing.lost == [*STAGES, "succeeded"]
        assert losing.repeated == [Settled.REPEATED] * 4
        words = [body["status"] for body in await told(engine, job)]
        assert words == ["claimed", *STAGES, "succeeded"]
        events = [event.step for event in await engine.store.events({job.job_id: 0}, 100) if event.type == "stage"]
        assert events == STAGES
