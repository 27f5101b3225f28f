"""Who gets in: keys that are missing, wrong, over or of the wrong scope."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping

import httpx2
import pytest

from callsheet.http import buckets, sse
from callsheet.http import keys as keys_module
from callsheet.http.keys import LETTERS, SUM, ApiKeys, _sum, is_well_formed, new_key
from callsheet.kernel.errors import InvalidInput
from callsheet.store.protocol import Document
from tests import stores
from tests.http.live import ADMIN, Live, frames, problem, serving

UNKNOWN = "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"


def with_secret_of(text: str, other: str) -> str:
    """A well-formed key with the lookup part of one and the secret of another."""
    body = text[:18] + other[18:-SUM]
    return body + _sum(body)


async def ask(live: Live, headers: Mapping[str, str], path: str = "/v1/jobs") -> httpx2.Response:
    async with live.bare() as client:
        return await client.get(path, headers=headers)


async def test_a_request_without_a_key_is_told_how_to_send_one(live: Live) -> None:
    answer = await ask(live, {})
    problem(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_key_is_taken_as_a_bearer(live: Live) -> None:
    for form in ["Bearer {}", "bearer {}", "BEARER   {}"]:
        assert (await ask(live, {"Authorization": form.format(await live.text("a"))})).status_code == 200


async def test_a_key_is_taken_in_its_own_header(live: Live) -> None:
    text = await live.text("a")
    assert (await ask(live, {"X-API-Key": text})).status_code == 200
    assert (await ask(live, {"X-API-Key": text, "Authorization": "Basic eDp5"})).status_code == 200


async def test_a_malformed_header_is_no_key(small: Live) -> None:
    for header in ["Bearer", "Basic {}", "{}", "Bearer {}x", "Bearer x{}", "Bearer {} {}", "Bearer \u00e9\u00ff"]:
        text = await small.text("a")
        answer = await ask(small, httpx2.Headers({"Authorization": header.format(text, text)}, encoding="latin-1"))
        problem(answer, 401, "unauthorized")
        assert text not in answer.text


async def test_unknown_wrong_revoked_and_expired_keys_get_the_same_answer(live: Live) -> None:
    good, revoked_key, expired_key = await live.text("a"), await live.text("a"), await live.text("a", ttl_s=-1)
    assert await ApiKeys(live.engine.store).revoke(revoked_key[8:18])
    wrong = with_secret_of(good, new_key())
    assert is_well_formed(wrong)
    assert wrong[8:18] == good[8:18]
    answers = [
        await ask(live, {"Authorization": f"Bearer {text}", "X-Request-ID": "same"})
        for text in (new_key(), wrong, revoked_key, expired_key, "garbage")
    ]
    for answer in answers:
        problem(answer, 401, "unauthorized")
    assert len({answer.content for answer in answers}) == 1
    assert len({tuple(sorted(set(answer.headers.items()) - {_date(answer)})) for answer in answers}) == 1


def _date(answer: httpx2.Response) -> tuple[str, str]:
    return ("date", answer.headers["date"])


async def test_the_bootstrap_key_is_an_admin_and_is_kept_nowhere(live: Live) -> None:
    job_id = await live.job(await live.key("somebody"))
    answer = await ask(live, {"Authorization": f"Bearer {ADMIN}"}, f"/v1/jobs/{job_id}")
    assert answer.status_code == 200
    assert ADMIN not in json.dumps(await live.engine.store.documents(keys_module.KIND))
    problem(await ask(live, {"Authorization": f"Bearer {ADMIN}x"}), 401, "unauthorized")


async def test_without_a_bootstrap_key_an_empty_one_opens_nothing() -> None:
    async with serving(stores.fresh_url("sqlite"), api_key="") as live:
        for headers in ({}, {"Authorization": "Bearer"}, {"X-API-Key": ""}):
            problem(await ask(live, headers), 401, "unauthorized")


ROUTES = [
    ("GET", "/v1/jobs", "jobs:read"),
    ("GET", f"/v1/jobs/{UNKNOWN}", "jobs:read"),
    ("GET", f"/v1/jobs/{UNKNOWN}/events", "jobs:read"),
    ("POST", f"/v1/jobs/{UNKNOWN}/events/ticket", "jobs:read"),
    ("GET", "/v1/events", "jobs:read"),
    ("POST", "/v1/events/ticket", "jobs:read"),
    ("POST", "/v1/jobs", "jobs:write"),
    ("POST", f"/v1/jobs/{UNKNOWN}/cancel", "jobs:write"),
]


@pytest.mark.parametrize(("method", "path", "scope"), ROUTES)
async def test_a_key_does_only_what_its_scopes_say(small: Live, method: str, path: str, scope: str) -> None:
    other = "jobs:write" if scope == "jobs:read" else "jobs:read"
    async with await small.key("a", scopes=(other,)) as lacking, await small.key("a", scopes=(scope,)) as having:
        assert scope in problem(await lacking.request(method, path), 403, "forbidden")["detail"]
        async with having.stream(method, path) as answer:
            assert answer.status_code != 403


async def test_no_key_is_made_with_a_scope_or_rate_that_is_none(small: Live) -> None:
    for wrong in ({"scopes": ("jobs:all",)}, {"rate": 0}, {"rate": -1.0}):
        with pytest.raises(InvalidInput):
            await small.text("a", **wrong)


async def test_the_store_and_the_log_never_hold_a_key(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    text = await live.text("a")
    for headers in ({"Authorization": f"Bearer {text}"}, {"X-API-Key": text}, {"Authorization": f"Bearer {text}x"}):
        answer = await ask(live, headers)
        assert text not in answer.text
    secret = text[18:]
    stored_text = json.dumps(await live.engine.store.documents(keys_module.KIND))
    assert text[8:18] in stored_text
    assert secret not in stored_text
    assert secret not in caplog.text + "".join(
        str(r.__dict__) for r in caplog.records if r.name.startswith("callsheet")
    )


async def test_what_the_store_holds_of_a_key_does_not_open(live: Live) -> None:
    await live.text("a")
    (document,) = await live.engine.store.documents(keys_module.KIND)
    for stolen_token in (json.loads(document.body)["hash"], document.id, document.body):
        problem(await ask(live, {"X-API-Key": stolen_token}), 401, "unauthorized")


async def test_another_pepper_makes_a_stolen_table_useless(small: Live) -> None:
    text = await small.text("a")
    assert await ApiKeys(small.engine.store, pepper="of another machine").principal(text) is None
    assert await ApiKeys(small.engine.store).principal(text) is not None


def variants(text: str) -> Iterator[str]:
    """All texts that differ in one letter."""
    for place, letter in enumerate(text):
        other = LETTERS[(LETTERS.find(letter) + 1) % len(LETTERS)]
        yield text[:place] + other + text[place + 1 :]


async def test_a_slip_of_one_letter_is_seen_without_the_store(small: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    documents = small.engine.store.documents

    async def counted(kind: str, id: str | None = None) -> list[Document]:
        requests.append(kind)
        return await documents(kind, id)

    text = new_key()
    monkeypatch.setattr(small.engine.store, "documents", counted)
    for slip in (*variants(text), "", text[:-1], text + "0", text.lower(), f"{text}\u00df"):
        assert not is_well_formed(slip)
        assert await ApiKeys(small.engine.store).principal(slip) is None
    assert not requests
    assert await ApiKeys(small.engine.store).principal(text) is None
    assert requests == ["api_key"]


async def test_a_revoked_key_is_believed_for_half_a_minute_at_most(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    text = await live.text("a")
    headers = {"Authorization": f"Bearer {text}"}
    assert keys_module.KEPT_S <= 30
    assert (await ask(live, headers)).status_code == 200
    assert await ApiKeys(live.engine.store).revoke(text[8:18])  # by another process: this one has it in mind
    monkeypatch.setattr(buckets, "time", _Clock(time.monotonic() + keys_module.KEPT_S + 0.1))
    problem(await ask(live, headers), 401, "unauthorized")


class _Clock:
    def __init__(self, now: float) -> None:
        self._now = now

    def monotonic(self) -> float:
        return self._now


@pytest.mark.parametrize("busy", [False, True])
async def test_an_open_stream_ends_when_its_key_is_revoked(
    live: Live, monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    monkeypatch.setattr(sse, "RECHECK_S", 0.05)
    monkeypatch.setattr(sse, "PING_S", 0.02)
    text = await live.text("a")
    async with await live.key("a") as maker:
        job = await live.running(maker)
    headers = {"Authorization": f"Bearer {text}"}
    async with live.bare() as client, client.stream("GET", f"/v1/jobs/{job.job_id}/events", headers=headers) as answer:
        if busy:
            monkeypatch.setattr(sse, "PING_S", 60.0)
        seen = 0
        async for _ in frames(answer):
            seen += 1
            if seen == 3:
                await ApiKeys(live.engine.store).revoke(text[8:18])
            if busy or seen < 3:
                await live.note(job, str(seen))
    assert not live.state.streams.total
