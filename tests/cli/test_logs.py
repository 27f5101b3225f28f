from __future__ import annotations

import io
import json
import logging
import re
import sys

import pytest

from callsheet.cli import logs
from callsheet.cli.errors import check_url, without_password, without_passwords
from callsheet.kernel.errors import InvalidInput

log = logging.getLogger("callsheet.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("url", "clean_url"),
    [
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("sqlite:////a:b@c/jobs.db", "sqlite:////a:b@c/jobs.db"),
        ("postgresql://app@db/app", "postgresql://app@db/app"),
        ("postgresql://app:s3cret@db:5432/app?pool_size=3", "postgresql://app:***@db:5432/app?pool_size=3"),
        ("redis://:s3cret@h:6379/0", "redis://:***@h:6379/0"),
        ("redis://:s3@cr/et@h/0", "redis://:***@h/0"),
        ("redis://:s3c?ret@h/0", "redis://:***@h/0"),
        ("postgresql://h/db?user=u&password=s3cret", "postgresql://h/db?user=u&password=***"),
        (
            "postgresql://u:s3cret@p/db?pgbouncer=true&direct_url=postgresql%3A%2F%2Fu%3As3cret%40h%2Fdb",
            "postgresql://u:***@p/db?pgbouncer=true&direct_url=postgresql://u:***@h/db",
        ),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, clean_url: str) -> None:
    assert without_password(url) == clean_url


def test_text_keeps_all_but_passwords() -> None:
    text = "http://h:80/a@b and redis://:s3cret@h/0, amqp://u:s3cret@h"
    assert without_passwords(text) == "http://h:80/a@b and redis://:***@h/0, amqp://u:***@h"


def test_a_url_that_cannot_be_read_is_refused_without_telling_it() -> None:
    with pytest.raises(InvalidInput) as excinfo:
        check_url("postgresql://u:s3/cret@h/db")
    assert "s3" not in str(excinfo.value)


def test_a_line_for_people_has_time_level_and_message() -> None:
    stream = io.StringIO()
    logs.set_up("human", "info", stream)
    log.debug("not told")
    log.info("store %s\nis open", "redis://:s3cret@h/0")
    log.warning("careful")
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO  store redis://:\*\*\*@h/0\\nis open", first)
    assert re.fullmatch(r"\d\d:\d\d:\d\d WARNING careful", second)


def test_only_a_terminal_gets_colours() -> None:
    stream = Terminal()
    logs.set_up("human", "info", stream)
    log.error("x")
    assert "\x1b[31mERROR\x1b[0m x" in stream.getvalue()


def test_a_json_line_has_the_records_fields_and_the_traceback_as_text() -> None:
    stream = io.StringIO()
    logs.set_up("json", "debug", stream)
    error = ValueError("redis://:s3cret@h/0")
    log.error("it broke", exc_info=error, extra={"fields": {"job_id": "j1", "level": "mine", "what": {1}}})
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert (record["level"], record["logger"], record["message"], record["job_id"]) == (
        "error",
        log.name,
        "it broke",
        "j1",
    )
    assert record["exception"].endswith("ValueError: redis://:***@h/0")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["ts"])


def test_logs_go_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.set_up("human", "warning")
    log.info("not told")
    log.warning("told")
    assert stream.getvalue().count("\n") == 1
