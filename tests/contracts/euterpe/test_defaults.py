"""The contract's numbers, and what each error of its task means."""

from __future__ import annotations

import errno

import pytest

from callsheet.contracts.euterpe.access import StorageFailing
from callsheet.contracts.euterpe.download import CutOff, Refused
from callsheet.contracts.euterpe.tasks import outcome_of
from callsheet.kernel import errors
from callsheet.kernel.errors import StoreError
from callsheet.media.errors import DiskFull, FfmpegMissing, NotMedia
from callsheet.net.guard import BlockedTarget
from callsheet.objects.errors import ObjectsForbidden, ObjectsUnavailable, ObjectTooLarge, UnknownObjects
from callsheet.outbox.shares import MAX_BATCH, DeliveryOptions
from callsheet.vault.errors import CredentialRejected, RefreshFailed, Tampered
from callsheet.worker.signals import Fatal, Retry


def test_the_deliverer_has_the_contracts_defaults() -> None:
    chosen = DeliveryOptions()
    assert (chosen.poll_ms, chosen.batch, chosen.concurrency) == ((500, 1_500), 10, 5)
    assert chosen.held == 10
    assert chosen._replace(batch=1_000).held == MAX_BATCH == 25


CASES = [
    (FfmpegMissing("none here"), Retry, "ffmpeg_missing"),
    (UnknownObjects("none here"), Retry, "unknown_objects"),
    (StoreError("no folder"), Retry, "store_error"),
    (RefreshFailed("late"), Retry, "refresh_failed"),
    (CutOff("away"), CutOff, "source_unavailable"),
    (DiskFull("full"), DiskFull, "disk_full"),
    (ObjectsUnavailable("away"), ObjectsUnavailable, "objects_unavailable"),
    (StorageFailing("slow", provider_code="SlowDown"), Retry, "429"),
    (StorageFailing("503"), Retry, "objects_unavailable"),
    (Refused(429), Retry, "429"),
    (Refused(503), Retry, "503"),
    (Refused(423), Retry, "423"),
    (OSError(errno.ENOSPC, "full"), errors.DiskFull, "disk_full"),
    (RuntimeError("https://example.org/?signature=secret"), Retry, "internal"),
    (Refused(404), Fatal, "source_refused"),
    (CredentialRejected("no"), Fatal, "credential_rejected"),
    (ObjectsForbidden("no"), Fatal, "credential_rejected"),
    (Tampered("no"), Fatal, "tampered"),
    (ObjectTooLarge("big"), Fatal, "source_too_large"),
    (NotMedia("no"), Fatal, "not_media"),
    (BlockedTarget("inside"), Fatal, "blocked_target"),
]


@pytest.mark.parametrize(("error", "outcome", "code"), CASES)
def test_an_error_has_a_code_and_is_tried_again_where_that_may_help(
    error: Exception, outcome: type[Exception], code: str
) -> None:
    result = outcome_of(error, attempt=1)
    assert type(result) is outcome
    assert result.code == code
    assert "secret" not in str(result)
