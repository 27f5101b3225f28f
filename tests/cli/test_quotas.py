from __future__ import annotations

import json
from typing import Any

import pytest

from callsheet.engine import Engine
from callsheet.engine.quotas import DEFAULTS, Quotas
from callsheet.kernel.errors import QuotaExceeded
from tests.cli.conftest import Shop


def acts(shop: Shop, *words: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(shop.cli("audit", "--json", *words).stdout)
    return entries


@pytest.mark.parametrize("url", ["sqlite", "postgres", "redis"], indirect=True)
def test_quotas_are_set_shown_and_reset(shop: Shop) -> None:
    shop.add(requester_id="acme")
    assert (
        shop.cli("quotas", "set", "acme", "--queued", "1000", "--bytes", "0").stdout == "acme: queued 1000, bytes 0\n"
    )
    (line,) = shop.cli("quotas", "list").stdout.splitlines()[1:]
    assert line.split() == ["acme", "1", "of", "1000", "0", "of", "-", "0", "of", "any", "-", "-", "0", "of", "-"]
    (record,) = json.loads(shop.cli("quotas", "list", "--tenant", "acme", "--json").stdout)
    assert (record["own"]["queued"], record["own"]["rate"], record["used"]["queued"]) == (1000, None, 1)
    assert record["limits"] == record["own"], "no server has told of its defaults"
    assert "default limits" in shop.cli("quotas", "reset", "acme").stdout
    assert shop.cli("quotas", "reset", "acme").exit_code == 1
    assert [act["action"] for act in acts(shop)] == ["quota.removed", "quota.changed"]


@pytest.mark.parametrize("url", ["sqlite", "postgres", "redis"], indirect=True)
def test_the_numbers_are_those_that_a_server_enforces(shop: Shop) -> None:
    async def serve(engine: Engine) -> None:
        quotas = Quotas(engine.store, DEFAULTS._replace(bytes=1_000))
        await quotas.publish()
        await quotas.charge("acme", 600)
        with pytest.raises(QuotaExceeded) as excinfo:
            await quotas.charge("acme", 401)
        assert (excinfo.value.limit, excinfo.value.used) == (1_000, 600)

    shop.add()
    shop.ask(serve)
    (record,) = json.loads(shop.cli("quotas", "list", "--tenant", "acme", "--json").stdout)
    assert (record["limits"]["bytes"], record["used"]["bytes"], record["own"]["bytes"]) == (1_000, 600, None)


@pytest.mark.parametrize("words", [["quotas", "set", "acme"], ["quotas", "set", "acme", "--queued", "-5"]])
def test_a_limit_that_is_none_is_refused(shop: Shop, words: list[str]) -> None:
    shop.add()
    assert shop.cli(*words).exit_code != 0
    assert shop.cli("audit").stdout == "no such entries\n"


@pytest.mark.parametrize("url", ["sqlite", "postgres", "redis"], indirect=True)
def test_acts_at_a_terminal_are_in_the_audit_log(shop: Shop) -> None:
    text = shop.cli("keys", "create", "ci", "--requester", "acme").stdout.strip()
    (made,) = acts(shop)
    assert (made["action"], made["actor"], made["tenant"]) == ("key.created", "cli", "acme")
    shop.cli("keys", "revoke", made["target"])
    enrolment = shop.cli("workers", "enroll").stdout.strip()
    shop.cli("jobs", "pause", "media")
    shop.cli("jobs", "resume", "media")
    actions = [act["action"] for act in acts(shop)]
    assert actions == ["queue.resumed", "queue.paused", "enrolment.created", "key.revoked", "key.created"]
    assert [act["action"] for act in acts(shop, "--tenant", "acme", "--action", "key.")] == [
        "key.revoked",
        "key.created",
    ]
    output = shop.cli("audit", "--limit", "2")
    assert "queue.resumed" in output.stdout
    assert "there may be more than 2" in output.stderr
    assert text not in json.dumps(acts(shop))
    assert enrolment not in json.dumps(acts(shop))
    assert shop.cli("audit", "--action", "nonsense").exit_code == 2
