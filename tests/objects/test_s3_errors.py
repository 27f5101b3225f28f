"""What the answers of a storage mean."""

from __future__ import annotations

import pytest

from callsheet.contracts.euterpe.access import StorageFailing
from callsheet.contracts.euterpe.tasks import outcome_of
from callsheet.objects.errors import ObjectsFailing
from callsheet.objects.s3_errors import of_answer

UNKNOWN = "<Error><Code>RateExceeded</Code></Error>"


@pytest.mark.parametrize("body", ["", "slow down, please", "<html><Code>", UNKNOWN])
def test_a_429_is_a_request_to_slow_down_whatever_its_code(body: str) -> None:
    error = of_answer(429, body, "head x")
    assert isinstance(error, ObjectsFailing)
    assert error.provider_code == "SlowDown"
    outcome = outcome_of(StorageFailing(str(error), provider_code=error.provider_code), 1)
    assert outcome.code == "429", "which has the larger backoff"
