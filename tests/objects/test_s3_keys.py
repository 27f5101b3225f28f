"""Keys of an S3 that are temporary: their scope, and expiry with renewal during a transfer."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx2
import pytest

from callsheet.objects import (
    ClockSkewed,
    Credentials,
    CredentialsExpired,
    HeldCredentials,
    Objects,
    ObjectsForbidden,
)
from callsheet.objects import s3 as s3_module
from callsheet.objects.s3 import S3Objects
from callsheet.objects.s3_wire import Bucket
from tests.objects.conftest import PART, browser
from tests.objects.front import Verdict, fronting
from tests.seaweed import ADMIN, BUCKET, READER, REGION, s3_server


async def test_a_reader_s_keys_read(s3: Objects) -> None:
    assert isinstance(s3, S3Objects)
    await s3.put("a", b"x")
    async with s3_server().objects(READER, prefix=s3._bucket.prefix) as reader:
        assert await reader.get("a") == b"x"
        with pytest.raises(ObjectsForbidden) as excinfo:
            await reader.put("a", b"y")
    assert excinfo.value.provider_code == "AccessDenied"


async def test_temporary_keys_do_what_their_scope_says(s3: Objects) -> None:
    """A job's own credentials: it may read only its source."""
    assert isinstance(s3, S3Objects)
    prefix = s3._bucket.prefix
    await s3.put("src/a", b"the source")
    await s3.put("other/a", b"of somebody else")
    keys = await s3_server().temporary(["s3:GetObject"], f"{prefix}/src/*")
    async with s3_server().objects(keys, prefix=prefix) as scoped, browser() as plain:
        assert await scoped.get("src/a") == b"the source"
        signed_url = await scoped.sign_get("src/a", 60)
        assert "X-Amz-Security-Token" in signed_url.url
        assert (await plain.get(signed_url.url)).content == b"the source"
        for attempt in (
            lambda: scoped.get("other/a"),
            lambda: scoped.put("src/a", b"x"),
            lambda: scoped.begin_multipart("src/b", part_bytes=PART),
        ):
            with pytest.raises(ObjectsForbidden):
                await attempt()
        assert (await plain.get((await scoped.sign_get("other/a", 60)).url)).status_code == 403
        put = await scoped.sign_put("src/a", 60)
        assert (await plain.put(put.url, content=b"x")).status_code == 403
    async with s3_server().objects(keys._replace(session_token=""), prefix=prefix) as without_token:
        with pytest.raises(ObjectsForbidden):
            await without_token.get("src/a")


async def test_temporary_keys_write_large_objects_where_they_may(s3: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "BLIND_PART_BYTES", PART)
    assert isinstance(s3, S3Objects)
    prefix = s3._bucket.prefix
    actions = ["s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
    keys = await s3_server().temporary(actions, f"{prefix}/out/*")
    data = hashlib.shake_128(b"out").digest(PART + 5)

    async def pieces() -> AsyncIterator[bytes]:
        yield data

    async with s3_server().objects(keys, prefix=prefix) as scoped:
        await scoped.put("out/video.mp4", pieces())
        upload = await scoped.begin_multipart("out/b", part_bytes=PART)
        async with browser() as plain:
            signed_url = await scoped.sign_part(upload, 1, 60, size_bytes=5)
            assert (await plain.put(signed_url.url, content=b"hello")).status_code == 200
        await scoped.complete_multipart(upload)
        with pytest.raises(ObjectsForbidden):
            await scoped.put("elsewhere", b"x")
    assert await s3.get("out/video.mp4") == data
    assert await s3.get("out/b") == b"hello"


async def test_parts_are_signed_anew_in_the_middle_of_an_upload(s3: Objects) -> None:
    """A25: the first keys end at half of it; remaining parts use URLs from the new keys."""
    assert isinstance(s3, S3Objects)
    prefix = s3._bucket.prefix
    actions = ["s3:PutObject", "s3:ListMultipartUploadParts", "s3:GetObject"]
    held = HeldCredentials(await s3_server().temporary(actions, f"{prefix}/*"))
    data = hashlib.shake_128(b"again").digest(3 * PART + 9)
    async with s3_server().objects(held, prefix=prefix) as objects, browser() as plain:
        upload = await objects.begin_multipart("a", part_bytes=PART)

        async def send(number: int, expires_s: int = 60) -> httpx2.Response:
            body = data[(number - 1) * PART : number * PART]
            signed_url = await objects.sign_part(upload, number, expires_s, size_bytes=len(body))
            assert held.current.access_key_id in signed_url.url
            return await plain.put(signed_url.url, content=body)

        assert [(await send(number)).status_code for number in (1, 2)] == [200, 200]
        stale = await objects.sign_part(upload, 3, 60, size_bytes=PART)
        first = held.current
        held.replace(await s3_server().temporary(actions, f"{prefix}/*"))
        assert held.current.access_key_id != first.access_key_id
        late = re.sub(r"X-Amz-Date=\w+", "X-Amz-Date=20200101T000000Z", stale.url)
        assert (await plain.put(late, content=data[2 * PART : 3 * PART])).status_code == 403
        assert [part.number for part in await objects.list_parts(upload)] == [1, 2]
        assert [(await send(number)).status_code for number in (3, 4)] == [200, 200]
        await objects.complete_multipart(upload)
    assert await s3.get("a") == data


async def test_keys_that_end_at_half_of_an_upload_are_renewed_once_and_no_part_is_sent_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A25 and E5: several parts are refused together, one requests new keys, and only refused parts are repeated."""
    old, renewals = Credentials("old", "old-secret", "old-token"), 0

    async def refresh(credentials: Credentials) -> Credentials:
        nonlocal renewals
        assert credentials is old
        renewals += 1
        await asyncio.sleep(0.05)
        return ADMIN

    monkeypatch.setattr(s3_module, "PART_BYTES", PART)
    held = HeldCredentials(ADMIN, refresh)
    parts = 6

    def judge(method: str, target: str, head: str) -> Verdict:
        if sum("partNumber" in pass_count for _, pass_count in front.passed) == parts // 2 and not renewals:
            held.replace(old)
        return (400, "ExpiredToken") if "X-Amz-Credential=old" in target else None

    async with fronting(s3_server().endpoint, judge) as front:
        objects = S3Objects(Bucket(BUCKET, front.url, REGION, "renewed"), held)
        data = hashlib.shake_128(b"y").digest(parts * PART)

        async def pieces() -> AsyncIterator[bytes]:
            yield data

        class Known:
            size_bytes = len(data)

            def __aiter__(self) -> AsyncIterator[bytes]:
                return pieces()

        await objects.put("a", Known())
        assert renewals == 1
        part_numbers = [re.search(r"partNumber=(\d+)", target) for method, target in front.passed if method == "PUT"]
        numbers = sorted(int(match[1]) for match in part_numbers if match)
        assert numbers == list(range(1, parts + 1)), "each part passed exactly once"
        assert 1 <= len(front.refused) <= 5
        await objects.close()
    async with s3_server().objects(prefix="renewed") as plain:
        assert await plain.get("a") == data


async def test_every_verb_goes_on_with_new_keys(tmp_path: Path) -> None:
    old = Credentials("old", "old-secret", "old-token")
    requests: list[Credentials] = []

    async def refresh(credentials: Credentials) -> Credentials:
        requests.append(credentials)
        return ADMIN

    def judge(method: str, target: str, head: str) -> Verdict:
        return (400, "ExpiredToken") if "Credential=old" in head or "Credential=old" in target else None

    async with fronting(s3_server().endpoint, judge) as front, s3_server().objects(prefix="verbs") as plain:
        await plain.put("a", b"hello")
        verbs: list[Callable[[Objects], Awaitable[object]]] = [
            lambda on: on.get("a"),
            lambda on: on.head("a"),
            lambda on: on.put("b", b"x"),
            lambda on: on.get_file("a", tmp_path / "out"),
            lambda on: anext(on.list()),
            lambda on: on.copy("a", "c"),
            lambda on: on.delete("c"),
            lambda on: on.begin_multipart("d", part_bytes=PART),
        ]
        for number, verb in enumerate(verbs, 1):
            held = HeldCredentials(old, refresh)
            on = S3Objects(Bucket(BUCKET, front.url, REGION, "verbs"), held)
            await verb(on)
            assert len(requests) == number, "each asked once"
            await on.close()


async def test_keys_that_are_refused_again_are_not_asked_for_again() -> None:
    requests: list[Credentials] = []

    async def refresh(credentials: Credentials) -> Credentials:
        requests.append(credentials)
        return Credentials("newer", f"secret-{len(requests)}", "token")

    async with fronting(s3_server().endpoint, lambda *_: (400, "ExpiredToken")) as front:
        for held in (
            HeldCredentials(Credentials("old", "s", "t"), refresh),
            HeldCredentials(Credentials("old", "s", "t")),
        ):
            objects = S3Objects(Bucket(BUCKET, front.url, REGION), held)
            for verb in (partial(objects.get, "a"), partial(objects.begin_multipart, "a", part_bytes=PART)):
                requests.clear()
                with pytest.raises(CredentialsExpired) as excinfo:
                    await verb()
                assert (excinfo.value.provider_code, excinfo.value.retryable) == ("ExpiredToken", True)
                assert len(requests) <= 1
            await objects.close()


async def test_a_refusal_for_another_reason_asks_for_new_keys_only_where_that_is_wanted() -> None:
    request = 0

    async def refresh(_: Credentials) -> Credentials:
        nonlocal request
        request += 1
        return ADMIN

    wrong = Credentials(ADMIN.access_key_id, "wrong")
    async with s3_server().objects(HeldCredentials(wrong, refresh), prefix="any") as objects:
        with pytest.raises(ObjectsForbidden):
            await objects.put("a", b"x")
    assert request == 0
    async with s3_server().objects(HeldCredentials(wrong, refresh, on_any_refusal=True), prefix="any") as objects:
        await objects.put("a", b"x")
        await objects.begin_multipart("a", part_bytes=PART)
    assert request == 1


async def test_of_many_who_are_refused_one_asks_for_new_keys() -> None:
    requests: list[Credentials] = []

    async def refresh(credentials: Credentials) -> Credentials:
        requests.append(credentials)
        await asyncio.sleep(0)
        return ADMIN

    old = Credentials("old", "s", "t")
    held = HeldCredentials(old, refresh)
    assert await asyncio.gather(*(held.renew(old) for _ in range(100))) == [True] * 100
    assert requests == [old]
    assert held.current is ADMIN


async def test_keys_are_renewed_before_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    renewed: list[float] = []

    async def refresh(_: Credentials) -> Credentials:
        renewed.append(now)
        if len(renewed) == 2:
            raise RuntimeError("not yet")
        return Credentials("new", "s", "t", round((now + 100) * 1000))

    held = HeldCredentials(Credentials("old", "s", "t", round((now + 100) * 1000)), refresh)
    await held.fresh()
    now += 79
    await held.fresh()
    assert renewed == []
    now += 2
    await asyncio.gather(*(held.fresh() for _ in range(5)))
    assert len(renewed) == 1
    now += 81
    assert (await held.fresh()).access_key_id == "new", "while they are good a failure is only a warning"
    now += 30
    assert (await held.fresh()).expires_at_ms == round((now + 100) * 1000)


@pytest.mark.parametrize(("code", "asks"), [("RequestTimeTooSkewed", 0), ("AccessDenied", 1)])
async def test_a_wrong_clock_asks_for_no_new_keys(code: str, asks: int) -> None:
    """A HEAD answer gives no reason, so it triggers no renewal."""
    requests: list[Credentials] = []

    async def refresh(credentials: Credentials) -> Credentials:
        requests.append(credentials)
        return Credentials("new", "s", "t")

    async with fronting(s3_server().endpoint, lambda *_: (403, code)) as front:
        verbs: list[Callable[[S3Objects], Awaitable[object]]] = [
            lambda objects: objects.get("a"),
            lambda objects: objects.head("a"),
            lambda objects: objects.put("a", b"x"),
            lambda objects: objects.begin_multipart("a", part_bytes=PART),
        ]
        for verb in verbs:
            held = HeldCredentials(ADMIN, refresh, on_any_refusal=True)
            objects = S3Objects(Bucket(BUCKET, front.url, REGION), held)
            requests.clear()
            with pytest.raises(ClockSkewed if not asks else ObjectsForbidden):
                await verb(objects)
            assert len(requests) == asks
            await objects.close()
