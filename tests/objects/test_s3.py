"""What only an S3 has: signatures that it checks itself, temporary keys, refusals by code, keys that end half-way."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
import pytest

from callsheet.objects import (
    ClockSkewed,
    Credentials,
    CredentialsExpired,
    HeldCredentials,
    ObjectNotFound,
    Objects,
    ObjectsError,
    ObjectsForbidden,
    ObjectsUnavailable,
    objects_from_url,
)
from callsheet.objects import s3 as s3_module
from callsheet.objects.s3 import PART_BYTES, S3Objects, part_bytes_for
from callsheet.objects.s3_wire import Bucket, Call
from callsheet.objects.sigv4 import Request, Scope, presign
from tests.client.proxy import before
from tests.objects.front import Verdict, fronting
from tests.seaweed import ADMIN, BUCKET, READER, REGION, s3_server

MEBIBYTE = 1024 * 1024
PART = 5 * MEBIBYTE


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(verify=False, timeout=20)


def code_of(answer: httpx.Response) -> str:
    found = re.search(r"<Code>(\w+)</Code>", answer.text)
    return found[1] if found else ""


def test_the_signature_is_that_of_the_published_example() -> None:
    """The presigned GET of the S3 documentation ("Authenticating Requests: Using Query Parameters")."""
    example = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    request = Request("GET", "https://examplebucket.s3.amazonaws.com/test.txt", 86_400)
    url = presign(request, example, Scope("us-east-1"), at=1_369_353_600.0)
    assert url.endswith("X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404")


@pytest.mark.parametrize("key", ["a b+c&d=e?f#g%2Fh.mp4", "ü/語😀.txt", "it's (1);@:,!*~.bin"])
async def test_signed_urls_are_good_for_any_key(s3: Objects, key: str) -> None:
    async with client() as browser:
        put = await s3.sign_put(key, 60, content_type="text/x-own", size_bytes=5)
        answer = await browser.put(put.url, content=b"hello", headers=dict(put.headers))
        assert answer.status_code == 200, answer.text
        got = await browser.get((await s3.sign_get(key, 60, download_name="a é.txt")).url)
    assert (got.content, got.headers["content-type"]) == (b"hello", "text/x-own")
    assert got.headers["content-disposition"].startswith("attachment")
    assert (await s3.head(key)).content_type == "text/x-own"


async def test_a_signed_url_is_for_one_method_key_size_and_type(s3: Objects) -> None:
    await s3.put("a", b"secret")
    get, put = await s3.sign_get("a", 60), await s3.sign_put("b", 60, content_type="text/plain", size_bytes=5)
    async with client() as browser:
        for answer in (
            await browser.put(get.url, content=b"x"),
            await browser.get(get.url.replace("/a?", "/b?")),
            await browser.get(get.url.replace("Expires=60", "Expires=600")),
            await browser.put(put.url, content=b"hello!", headers=dict(put.headers) | {"content-length": "6"}),
            await browser.put(put.url, content=b"hello", headers={"content-type": "text/html"}),
            await browser.put(put.url, content=b"hello"),
        ):
            assert (answer.status_code, code_of(answer)) in {(403, "SignatureDoesNotMatch"), (403, "AccessDenied")}
    assert not await s3.exists("b")


async def test_a_signed_url_ends(s3: Objects) -> None:
    await s3.put("a", b"x")
    assert isinstance(s3, S3Objects)
    request = Request("GET", s3._bucket.url("a"), 5)
    async with client() as browser:
        young = presign(request, ADMIN, Scope(REGION), at=time.time() - 2)
        old = presign(request, ADMIN, Scope(REGION), at=time.time() - 7)
        assert (await browser.get(young)).status_code == 200
        assert (await browser.get(old)).status_code == 403


async def test_a_wrong_secret_is_refused_by_every_verb(tmp_path: Path) -> None:
    secret = "a-wrong-secret-that-nobody-may-see"
    async with s3_server().objects(Credentials(ADMIN.access_key_id, secret)) as wrong:
        (tmp_path / "file").write_bytes(b"x" * (PART_BYTES + 1))
        for attempt in (
            lambda: wrong.put("a", b"x"),
            lambda: wrong.put_file("a", tmp_path / "file"),
            lambda: wrong.get("a"),
            lambda: wrong.head("a"),
            lambda: wrong.get_range("a", 0, 1),
            lambda: wrong.get_file("a", tmp_path / "out"),
            lambda: anext(wrong.list()),
            lambda: wrong.copy("a", "b"),
            lambda: wrong.delete("a"),
            lambda: wrong.begin_multipart("a", part_bytes=PART),
            lambda: asyncio.to_thread(wrong.open_reader, "a"),
        ):
            with pytest.raises(ObjectsForbidden) as caught:
                await attempt()
            assert secret not in str(caught.value) + repr(caught.value)
            assert caught.value.__cause__ is None
            assert not caught.value.retryable
        with pytest.raises(ObjectsForbidden) as caught:
            await wrong.head("a")
        assert caught.value.provider_code == "SignatureDoesNotMatch", "an answer to HEAD has no code: ask again by GET"


async def test_a_reader_s_keys_read(s3: Objects) -> None:
    assert isinstance(s3, S3Objects)
    await s3.put("a", b"x")
    async with s3_server().objects(READER, prefix=s3._bucket.prefix) as reader:
        assert await reader.get("a") == b"x"
        with pytest.raises(ObjectsForbidden) as caught:
            await reader.put("a", b"y")
    assert caught.value.provider_code == "AccessDenied"


async def test_temporary_keys_do_what_their_scope_says(s3: Objects) -> None:
    """A job's own credentials: it may read its source, and nothing else."""
    assert isinstance(s3, S3Objects)
    prefix = s3._bucket.prefix
    await s3.put("src/a", b"the source")
    await s3.put("other/a", b"of somebody else")
    keys = await s3_server().temporary(["s3:GetObject"], f"{prefix}/src/*")
    async with s3_server().objects(keys, prefix=prefix) as scoped, client() as browser:
        assert await scoped.get("src/a") == b"the source"
        signed = await scoped.sign_get("src/a", 60)
        assert "X-Amz-Security-Token" in signed.url
        assert (await browser.get(signed.url)).content == b"the source"
        for attempt in (
            lambda: scoped.get("other/a"),
            lambda: scoped.put("src/a", b"x"),
            lambda: scoped.begin_multipart("src/b", part_bytes=PART),
        ):
            with pytest.raises(ObjectsForbidden):
                await attempt()
        assert (await browser.get((await scoped.sign_get("other/a", 60)).url)).status_code == 403
        put = await scoped.sign_put("src/a", 60)
        assert (await browser.put(put.url, content=b"x")).status_code == 403
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
        async with client() as browser:
            signed = await scoped.sign_part(upload, 1, 60, size_bytes=5)
            assert (await browser.put(signed.url, content=b"hello")).status_code == 200
        await scoped.complete_multipart(upload)
        with pytest.raises(ObjectsForbidden):
            await scoped.put("elsewhere", b"x")
    assert await s3.get("out/video.mp4") == data
    assert await s3.get("out/b") == b"hello"


async def test_parts_are_signed_anew_in_the_middle_of_an_upload(s3: Objects) -> None:
    """A25: the first keys end at half of it; the rest goes on with URLs of the new ones."""
    assert isinstance(s3, S3Objects)
    prefix = s3._bucket.prefix
    actions = ["s3:PutObject", "s3:ListMultipartUploadParts", "s3:GetObject"]
    held = HeldCredentials(await s3_server().temporary(actions, f"{prefix}/*"))
    data = hashlib.shake_128(b"again").digest(3 * PART + 9)
    async with s3_server().objects(held, prefix=prefix) as objects, client() as browser:
        upload = await objects.begin_multipart("a", part_bytes=PART)

        async def send(number: int, expires_s: int = 60) -> httpx.Response:
            body = data[(number - 1) * PART : number * PART]
            signed = await objects.sign_part(upload, number, expires_s, size_bytes=len(body))
            assert held.current.access_key_id in signed.url
            return await browser.put(signed.url, content=body)

        assert [(await send(number)).status_code for number in (1, 2)] == [200, 200]
        stale = await objects.sign_part(upload, 3, 60, size_bytes=PART)
        first = held.current
        held.replace(await s3_server().temporary(actions, f"{prefix}/*"))
        assert held.current.access_key_id != first.access_key_id
        late = re.sub(r"X-Amz-Date=\w+", "X-Amz-Date=20200101T000000Z", stale.url)
        assert (await browser.put(late, content=data[2 * PART : 3 * PART])).status_code == 403
        assert [part.number for part in await objects.list_parts(upload)] == [1, 2]
        assert [(await send(number)).status_code for number in (3, 4)] == [200, 200]
        await objects.complete_multipart(upload)
    assert await s3.get("a") == data


async def test_keys_that_end_at_half_of_an_upload_are_renewed_once_and_no_part_is_sent_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A25 and E5: many parts are refused at once, one asks for new keys, and only what was refused is sent again."""
    old, renewals = Credentials("old", "old-secret", "old-token"), 0

    async def refresh(refused: Credentials) -> Credentials:
        nonlocal renewals
        assert refused is old
        renewals += 1
        await asyncio.sleep(0.05)
        return ADMIN

    monkeypatch.setattr(s3_module, "PART_BYTES", PART)
    held = HeldCredentials(ADMIN, refresh)
    parts = 6

    def judge(method: str, target: str, head: str) -> Verdict:
        if sum("partNumber" in passed for _, passed in front.passed) == parts // 2 and not renewals:
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
        sent = [re.search(r"partNumber=(\d+)", target) for method, target in front.passed if method == "PUT"]
        numbers = sorted(int(match[1]) for match in sent if match)
        assert numbers == list(range(1, parts + 1)), "each part passed exactly once"
        assert 1 <= len(front.refused) <= 5
        await objects.close()
    async with s3_server().objects(prefix="renewed") as plain:
        assert await plain.get("a") == data


async def test_every_verb_goes_on_with_new_keys(tmp_path: Path) -> None:
    old = Credentials("old", "old-secret", "old-token")
    asked: list[Credentials] = []

    async def refresh(refused: Credentials) -> Credentials:
        asked.append(refused)
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
            assert len(asked) == number, "each asked once"
            await on.close()


async def test_keys_that_are_refused_again_are_not_asked_for_again() -> None:
    asked: list[Credentials] = []

    async def refresh(refused: Credentials) -> Credentials:
        asked.append(refused)
        return Credentials("newer", f"secret-{len(asked)}", "token")

    async with fronting(s3_server().endpoint, lambda *_: (400, "ExpiredToken")) as front:
        for held in (
            HeldCredentials(Credentials("old", "s", "t"), refresh),
            HeldCredentials(Credentials("old", "s", "t")),
        ):
            objects = S3Objects(Bucket(BUCKET, front.url, REGION), held)
            for verb in (partial(objects.get, "a"), partial(objects.begin_multipart, "a", part_bytes=PART)):
                asked.clear()
                with pytest.raises(CredentialsExpired) as caught:
                    await verb()
                assert (caught.value.provider_code, caught.value.retryable) == ("ExpiredToken", True)
                assert len(asked) <= 1
            await objects.close()


async def test_a_refusal_for_another_reason_asks_for_new_keys_only_where_that_is_wanted() -> None:
    asked = 0

    async def refresh(_: Credentials) -> Credentials:
        nonlocal asked
        asked += 1
        return ADMIN

    wrong = Credentials(ADMIN.access_key_id, "wrong")
    async with s3_server().objects(HeldCredentials(wrong, refresh), prefix="any") as objects:
        with pytest.raises(ObjectsForbidden):
            await objects.put("a", b"x")
    assert asked == 0
    async with s3_server().objects(HeldCredentials(wrong, refresh, on_any_refusal=True), prefix="any") as objects:
        await objects.put("a", b"x")
        await objects.begin_multipart("a", part_bytes=PART)
    assert asked == 1


async def test_of_many_who_are_refused_one_asks_for_new_keys() -> None:
    asked: list[Credentials] = []

    async def refresh(refused: Credentials) -> Credentials:
        asked.append(refused)
        await asyncio.sleep(0)
        return ADMIN

    old = Credentials("old", "s", "t")
    held = HeldCredentials(old, refresh)
    assert await asyncio.gather(*(held.renew(old) for _ in range(100))) == [True] * 100
    assert asked == [old]
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


@pytest.mark.parametrize(
    ("status", "code", "known", "retryable"),
    [
        (503, "SlowDown", ObjectsUnavailable, True),
        (500, "InternalError", ObjectsUnavailable, True),
        (403, "RequestTimeTooSkewed", ClockSkewed, True),
        (403, "AccessDenied", ObjectsForbidden, False),
        (404, "NoSuchBucket", ObjectsError, False),
        (404, "NoSuchKey", ObjectNotFound, False),
        (400, "ExpiredToken", CredentialsExpired, True),
        (400, "TokenRefreshRequired", CredentialsExpired, True),
        (403, "InvalidToken", CredentialsExpired, True),
    ],
)
async def test_an_error_is_known_by_its_code(
    status: int, code: str, known: type[ObjectsError], retryable: object
) -> None:
    async with fronting(s3_server().endpoint, lambda *_: (status, code)) as front:
        objects = S3Objects(Bucket(BUCKET, front.url, REGION), HeldCredentials(ADMIN))
        for verb in (lambda: objects.get("a"), lambda: objects._wire.ask(Call("GET", "a", {}), "get a")):
            with pytest.raises(ObjectsError) as caught:
                await verb()
            assert type(caught.value) is known
            assert (caught.value.provider_code in {code, ""}, caught.value.retryable) == (True, retryable)
        await objects.close()


@pytest.mark.parametrize(("code", "asks"), [("RequestTimeTooSkewed", 0), ("AccessDenied", 1)])
async def test_a_wrong_clock_asks_for_no_new_keys(code: str, asks: int) -> None:
    """Not even by HEAD, whose answers do not say why they refuse."""
    asked: list[Credentials] = []

    async def refresh(refused: Credentials) -> Credentials:
        asked.append(refused)
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
            asked.clear()
            with pytest.raises(ClockSkewed if not asks else ObjectsForbidden):
                await verb(objects)
            assert len(asked) == asks
            await objects.close()


async def test_a_storage_that_is_away_is_told_so_soon() -> None:
    objects = S3Objects(Bucket(BUCKET, "http://127.0.0.1:1", REGION), HeldCredentials(ADMIN))
    for verb in (
        lambda: objects.get("a"),
        lambda: objects.put("a", b"x"),
        lambda: objects.head("a"),
        lambda: objects.begin_multipart("a", part_bytes=PART),
    ):
        async with asyncio.timeout(10):
            with pytest.raises(ObjectsUnavailable) as caught:
                await verb()
        assert caught.value.retryable
    await objects.close()


async def test_a_download_that_is_cut_again_and_again_arrives_whole(s3: Objects, tmp_path: Path) -> None:
    assert isinstance(s3, S3Objects)
    data = hashlib.shake_128(b"cut").digest(24 * MEBIBYTE)
    await s3.put("a", data)
    async with before(s3_server().endpoint, lambda: 5 * MEBIBYTE) as proxy:
        behind = s3_server().at(proxy.url, s3._bucket.prefix)
        got = await behind.get_file("a", tmp_path / "out")
        await behind.close()
    assert proxy.cuts >= 4
    assert got.sha256 == hashlib.sha256(data).hexdigest()
    assert (tmp_path / "out").read_bytes() == data
    assert got.bytes_moved == len(data), "no byte is written twice"


async def test_an_upload_that_breaks_leaves_no_parts_behind(s3: Objects) -> None:
    assert isinstance(s3, S3Objects)

    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * (40 * MEBIBYTE)
        raise RuntimeError("broke")

    with pytest.raises(RuntimeError, match="broke"):
        await s3.put("a", broken())
    answer = await s3._wire.ask(Call("GET", "", {"uploads": "", "prefix": s3._bucket.prefix}), "list uploads")
    assert "<UploadId>" not in answer.text


async def test_no_secret_and_no_signed_url_is_shown(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG, "callsheet")
    secret, token = "a-secret-for-nobody", "a-token-for-nobody"
    credentials = Credentials("AKIA", secret, token)
    held = HeldCredentials(credentials)
    shown = [repr(credentials), str(credentials), f"{credentials}", repr(held)]
    objects = S3Objects(Bucket(BUCKET, s3_server().endpoint, REGION), held)
    signed = await objects.sign_get("a", 60)
    shown += [repr(objects), repr(signed), str(signed), f"{signed}", repr([signed])]
    for verb in (lambda: objects.get("a"), lambda: objects.begin_multipart("a", part_bytes=PART)):
        with pytest.raises(ObjectsError) as caught:
            await verb()
        error: BaseException | None = caught.value
        while error is not None:
            shown += [str(error), repr(error)]
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    shown += [record.getMessage() for record in caplog.records if record.name.startswith("callsheet")]
    await objects.close()
    for text in shown:
        for hidden in (secret, token, "X-Amz-Signature", "Signature="):
            assert hidden not in text


@pytest.mark.parametrize(
    ("environ", "endpoint", "region", "key"),
    [
        (
            {"S3_ACCESS_KEY_ID": "k", "S3_SECRET_ACCESS_KEY": "s"},
            "https://b.s3.us-east-1.amazonaws.com",
            "us-east-1",
            "k",
        ),
        (
            {"S3_ACCESS_KEY": "k", "S3_SECRET_KEY": "s", "S3_ENDPOINT": "https://x.example/", "S3_REGION": "fra1"},
            "https://x.example/b",
            "fra1",
            "k",
        ),
        (
            {"AWS_ACCESS_KEY_ID": "aws", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-west-1"},
            "https://b.s3.eu-west-1.amazonaws.com",
            "eu-west-1",
            "aws",
        ),
        (
            {
                "S3_ACCESS_KEY_ID": "k",
                "S3_SECRET_ACCESS_KEY": "s",
                "AWS_ACCESS_KEY_ID": "aws",
                "AWS_SECRET_ACCESS_KEY": "t",
                "AWS_SESSION_TOKEN": "of-the-other",
            },
            "https://b.s3.us-east-1.amazonaws.com",
            "us-east-1",
            "k",
        ),
    ],
)
def test_the_settings_are_those_of_the_contracts(environ: dict[str, str], endpoint: str, region: str, key: str) -> None:
    for url, extra in (("s3://b/pre/fix", {}), ("s3:///pre/fix", {"S3_BUCKET": "b"})):
        objects = objects_from_url(url, environ={**environ, **extra})
        assert isinstance(objects, S3Objects)
        assert (objects._bucket.base, objects._bucket.region) == (endpoint, region)
        assert objects._bucket.prefix == "pre/fix"
        current = objects._credentials.current
        assert (current.access_key_id, current.session_token) == (key, "")


@pytest.mark.parametrize(
    "url",
    ["", "x", "ftp://a", "s3://b", "s3://", "s3://key:secret@b", "file:///", "file://host/a", "file:a", "s3://b/../c"],
)
def test_a_url_that_cannot_be_is_refused_without_a_word_of_it(url: str) -> None:
    with pytest.raises(ObjectsError) as caught:
        objects_from_url(url, environ={"S3_ACCESS_KEY_ID": "k", "S3_SECRET_ACCESS_KEY": "s"} if "/.." in url else {})
    assert "secret@" not in str(caught.value)


def test_parts_are_as_large_as_ten_thousand_of_them_need() -> None:
    for size in (0, 1, PART_BYTES, 10_000 * PART_BYTES, 10_000 * PART_BYTES + 1, 5 * 1024**4):
        part = part_bytes_for(size)
        assert part >= PART_BYTES
        assert part % MEBIBYTE == 0
        assert part * 10_000 >= size
