from __future__ import annotations

import copy
import dataclasses
import gc
import io
import json
import logging
import pickle
import pprint
import traceback
from typing import Any, NamedTuple

import pydantic
import pytest
from rich.console import Console

from callsheet.vault import Secret
from callsheet.vault.secret import alive

WORD = "correct-horse-battery-staple"


class Record(NamedTuple):
    name: str
    secret: Secret


@dataclasses.dataclass
class Settings:
    secret: Secret


def shown_by_rich(value: object) -> str:
    out = io.StringIO()
    Console(file=out).print(value)
    return out.getvalue()


def logged(value: object) -> str:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    logger = logging.Logger("x")  # noqa: LOG001 - of this test alone
    logger.addHandler(handler)
    logger.warning("%s %r", value, value)
    logger.warning("%(x)s", {"x": value})
    return out.getvalue()


SHOWN = [
    repr,
    str,
    ascii,
    "{}".format,
    "{!r:>40}".format,
    "{:>40}".format,
    lambda s: f"{s} {s!s} {s!r}",
    lambda s: "%s %r" % (s, s),  # noqa: UP031
    lambda s: repr([s, (s,), {"a": s}, Record("n", s), Settings(s)]),
    pprint.pformat,
    lambda s: json.dumps({"a": s}, default=str),
    lambda s: json.dumps({"a": s}, default=repr),
    shown_by_rich,
    logged,
    lambda s: repr(dir(s)),
    lambda s: repr(dataclasses.asdict(Settings(s))),
    lambda s: repr(copy.deepcopy({"a": s})) + repr(copy.copy(s)),
]


@pytest.mark.parametrize("show", SHOWN)
def test_a_secret_does_not_show_itself(show: Any) -> None:
    text = show(Secret(WORD))
    assert WORD not in text
    assert isinstance(text, str)


def refused_by_pydantic(secret: Secret) -> None:
    class Model(pydantic.BaseModel):
        secret: Secret


@pytest.mark.parametrize(
    "use",
    [
        pickle.dumps,
        lambda s: pickle.dumps({"a": [s]}, protocol=2),
        json.dumps,
        hash,
        lambda s: {s},
        iter,
        len,
        bytes,
        vars,
        lambda s: s + "x",
        lambda s: s.__getstate__(),
        lambda s: s.__reduce__(),
        refused_by_pydantic,
        lambda s: type("Other", (Secret,), {}),
    ],
)
def test_a_secret_is_not_turned_into_anything_else(use: Any) -> None:
    with pytest.raises((TypeError, pydantic.errors.PydanticSchemaGenerationError)) as excinfo:
        use(Secret(WORD))
    assert WORD not in repr(excinfo.value)


def test_a_secret_does_not_change() -> None:
    secret = Secret(WORD)
    for name in ("text", "_Secret__text"):
        with pytest.raises(AttributeError):
            setattr(secret, name, "x")
    with pytest.raises(AttributeError):
        del secret._Secret__text  # type: ignore[attr-defined]
    assert secret.reveal() == WORD


def test_equal_secrets_are_equal_and_a_secret_is_no_text() -> None:
    assert Secret(WORD) == Secret(WORD)
    assert Secret(WORD) != Secret("other")
    assert Secret(WORD) != WORD


def test_a_traceback_with_locals_does_not_show_it() -> None:
    def fall(secret: Secret) -> None:
        raise RuntimeError(f"cannot use {secret}")

    try:
        fall(Secret(WORD))
    except RuntimeError as error:
        message = traceback.TracebackException.from_exception(error, capture_locals=True)
        text = "".join(message.format())
    assert "Secret(***)" in text
    assert WORD not in text


def test_text_that_is_not_json_is_not_in_the_error() -> None:
    """A JSONDecodeError has the whole document as an attribute."""
    with pytest.raises(ValueError, match="not JSON") as excinfo:
        Secret(WORD).reveal_json()
    assert excinfo.value.__context__ is None
    assert excinfo.value.__cause__ is None


def test_parts_are_the_texts_that_are_not_public() -> None:
    text = json.dumps({"access_key_id": "AKIA-part", "region": "eu-central-1", "nested": [{"token": WORD}], "n": 5})
    assert set(Secret(text).parts()) == {text, "AKIA-part", WORD}


def test_a_secret_is_forgotten_when_nobody_holds_it() -> None:
    secret = Secret(WORD)
    assert any(one is secret for one in alive())
    del secret
    gc.collect()
    assert not any(one == Secret(WORD) and one is not None for one in alive() if one.reveal() == WORD)
