"""The origin of an exception: determined by the raising call, not by the class."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType

import pytest

from callsheet.kernel.errors import is_from_driver


def within(module: str, function: FunctionType) -> Callable[..., object]:
    """The function as if it stood in another module."""
    return FunctionType(
        function.__code__, {**function.__globals__, "__name__": module}, function.__name__, None, function.__closure__
    )


def breaks() -> None:
    raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


def caught(work: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as error:  # noqa: PT011 - whatever it is
        work()
    return error.value


def calls(inner: Callable[[], object]) -> Callable[[], object]:
    def call() -> object:
        return inner()

    return call


def ours(inner: Callable[[], object]) -> Callable[[], object]:
    return within("callsheet.store.redis.client", calls(inner))  # type: ignore[arg-type]


def driver(inner: Callable[[], object]) -> Callable[[], object]:
    return within("redis.asyncio.connection", calls(inner))  # type: ignore[arg-type]


def test_what_a_driver_raises_is_the_drivers_whatever_its_class() -> None:
    error = caught(ours(driver(within("uvloop.loop", breaks))))  # type: ignore[arg-type]
    assert is_from_driver(error, "redis")
    assert not is_from_driver(error, "asyncpg")


def test_a_mistake_of_ours_is_ours_even_below_a_driver() -> None:
    mistake = within("callsheet.store.redis.client", breaks)  # type: ignore[arg-type]
    assert not is_from_driver(caught(ours(mistake)), "redis")
    assert not is_from_driver(caught(ours(driver(mistake))), "redis")


def test_another_library_that_we_called_is_no_driver() -> None:
    assert not is_from_driver(caught(ours(lambda: json.loads("{"))), "redis")


def test_code_that_uses_us_is_no_driver() -> None:
    judgements: list[bool] = []

    @contextmanager
    def edge() -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            judgements.append(is_from_driver(error, "redis"))
            raise

    def use() -> None:
        with edge():
            breaks()

    caught(use)
    assert judgements == [False]


def test_an_error_that_was_never_raised_is_nobodys() -> None:
    assert not is_from_driver(RuntimeError("made, not raised"), "redis")
