from __future__ import annotations

import pytest
from starlette.requests import Request

from callsheet.contracts.control_plane import versions
from callsheet.http.problems import Problem

SERVED = (versions.OLDEST, versions.CURRENT)


def request(header: str | None) -> Request:
    headers = [] if header is None else [(versions.HEADER.encode(), header.encode())]
    return Request({"type": "http", "headers": headers})


def test_the_present_protocol_and_the_one_before_are_served() -> None:
    assert SERVED == (versions.CURRENT - 1, versions.CURRENT)
    assert [versions.check(protocol) for protocol in SERVED] == [*SERVED]


@pytest.mark.parametrize("protocol", [-1, versions.OLDEST - 1, versions.CURRENT + 1, 999])
def test_another_protocol_gets_no_work_but_may_end_what_it_has(protocol: int) -> None:
    with pytest.raises(Problem) as excinfo:
        versions.check(protocol)
    assert (excinfo.value.code, excinfo.value.status) == ("upgrade_required", 426)
    assert excinfo.value.more == {"min_version": versions.OLDEST, "max_version": versions.CURRENT}
    assert excinfo.value.headers["Upgrade"] == f"callsheet/{versions.CURRENT}"
    assert versions.lenient(protocol) in SERVED


def test_a_worker_says_what_it_speaks_in_the_body_or_in_a_header() -> None:
    assert versions.protocol_of(request(None)) == versions.BARE
    assert versions.protocol_of(request("2")) == 2
    assert versions.protocol_of(request("2"), 1) == 1
    assert versions.protocol_of(request(" 7 ")) == 7
    for wrong in ("two", "-1", "1.0", "9" * 7):
        with pytest.raises(Problem, match="number of a protocol"):
            versions.protocol_of(request(wrong))
