"""httpx2 errors are translated by origin, not by class."""

from __future__ import annotations

import pytest

from callsheet.net.driver_errors import http_errors_as, reason_of
from tests.kernel.test_origin import breaks, within


class Broken(Exception):
    """Stands for an error of ours."""


def sends() -> None:
    with http_errors_as(lambda error: Broken(reason_of(error))):
        within("httpx2._client", breaks)()  # type: ignore[arg-type]


def fails() -> None:
    with http_errors_as(lambda error: Broken(reason_of(error))):
        assert 1 / 0


def test_whatever_the_driver_raises_is_translated_and_dropped() -> None:
    with pytest.raises(Broken, match="the handler is closed") as excinfo:
        within("callsheet.client.transport", sends)()  # type: ignore[arg-type]
    assert excinfo.value.__cause__ is None
    assert excinfo.value.__suppress_context__


def test_a_bug_of_ours_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        within("callsheet.client.transport", fails)()  # type: ignore[arg-type]


def test_an_error_without_a_text_has_the_name_of_its_class() -> None:
    assert reason_of(TimeoutError()) == "TimeoutError"
    assert reason_of(TimeoutError("late")) == "late"
