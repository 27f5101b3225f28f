from __future__ import annotations

from callsheet.outbox.options import MAX_BATCH, DeliveryOptions


def test_the_deliverer_has_the_contracts_defaults() -> None:
    chosen = DeliveryOptions()
    assert (chosen.poll_ms, chosen.batch, chosen.concurrency) == ((500, 1_500), 10, 5)
    assert chosen.held == 10
    assert chosen._replace(batch=1_000).held == MAX_BATCH == 25
