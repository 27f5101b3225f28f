"""Behaviour specific to S3: signatures that it checks itself, refusals by code, cuts; and its settings."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from callsheet.net.sigv4 import Request, Scope, presign
from callsheet.objects import (
    ClockSkewed,
    Credentials,
    CredentialsExpired,
    HeldCredentials,
    ObjectNotFound,
    Objects,
    ObjectsError,
    ObjectsFailing,
    ObjectsForbidden,
    ObjectsUnavailable,
    objects_from_url,
)
from callsheet.objects.s3 import PART_BYTES, S3Objects, part_bytes_for
from callsheet.objects.s3_wire import Bucket, Call
from tests.client.proxy import before
from tests.objects.conftest import MEBIBYTE, PART, browser
from tests.objects.front import fronting
from tests.seaweed import ADMIN, BUCKET, REGION, s3_server


def code_of(answer: httpx2.Response) -> str:
    match = re.search(r"<Code>(\w+)</Code>", answer.text)
    return match[1] if match else ""


def test_the_signature_is_that_of_the_published_example() -> None:
    """The presigned GET of the S3 documentation ("Authenticating Requests: Using Query Parameters")."""
    example = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    request = Request("GET", "https://examplebucket.s3.amazonaws.com/test.txt", 86_400)
    url = presign(request, example, Scope("us-east-1"), at=1_369_353_600.0)
    assert url.endswith("X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404")


@pytest.mark.parametrize("key", ["a b+c&d=e?f#g%2Fh.mp4", "ü/語😀.txt", "it's (1);@:,!*~.bin"])
async def test_signed_urls_are_good_for_any_key(s3: Objects, key: str) -> None:
    async with browser() as plain:
        put = await s3.sign_put(key, 60, content_type="text/x-own", size_bytes=5)
        answer = await plain.put(put.url, content=b"hello", headers=dict(put.headers))
        assert answer.status_code == 200, answer.text
        response = await plain.get((await s3.sign_get(key, 60, download_name="a é.txt")).url)
    assert (response.content, response.headers["content-type"]) == (b"hello", "text/x-own")
    assert response.headers["content-disposition"].startswith("attachment")
    assert (await s3.head(key)).content_type == "text/x-own"


async def test_a_signed_url_is_for_one_method_key_size_and_type(s3: Objects) -> None:
    await s3.put("a", b"secret")
    get, put = await s3.sign_get("a", 60), await s3.sign_put("b", 60, content_type="text/plain", size_bytes=5)
    async with browser() as plain:
        for answer in (
            await plain.put(get.url, content=b"x"),
            await plain.get(get.url.replace("/a?", "/b?")),
            await plain.get(get.url.replace("Expires=60", "Expires=600")),
            await plain.put(put.url, content=b"hello!", headers=dict(put.headers) | {"content-length": "6"}),
            await plain.put(put.url, content=b"hello", headers={"content-type": "text/html"}),
            await plain.put(put.url, content=b"hello"),
        ):
            assert (answer.status_code, code_of(answer)) in {(403, "SignatureDoesNotMatch"), (403, "AccessDenied")}
    assert not await s3.exists("b")


async def test_a_signed_url_ends(s3: Objects) -> None:
    await s3.put("a", b"x")
    assert isinstance(s3, S3Objects)
    request = Request("GET", s3._bucket.url("a"), 3_600)
    async with browser() as plain:
        young = presign(request, ADMIN, Scope(REGION), at=time.time() - 1_800)
        old = presign(request, ADMIN, Scope(REGION), at=time.time() - 5_400)
        assert (await plain.get(young)).status_code == 200
        assert (await plain.get(old)).status_code == 403


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
            with pytest.raises(ObjectsForbidden) as excinfo:
                await attempt()
            assert secret not in str(excinfo.value) + repr(excinfo.value)
            assert excinfo.value.__cause__ is None
            assert not excinfo.value.retryable
        with pytest.raises(ObjectsForbidden) as excinfo:
            await wrong.head("a")
        assert excinfo.value.provider_code == "SignatureDoesNotMatch", "an answer to HEAD has no code: ask again by GET"


@pytest.mark.parametrize(
    ("status", "code", "known", "retryable"),
    [
        (503, "SlowDown", ObjectsFailing, True),
        (500, "InternalError", ObjectsFailing, True),
        (403, "RequestTimeTooSkewed", ClockSkewed, True),
        (403, "AccessDenied", ObjectsForbidden, False),
        (404, "NoSuchBucket", ObjectsError, False),
        (404, "NoSuchKey", ObjectNotFound, False),
        (400, "RequestTimeout", ObjectsFailing, True),
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
            with pytest.raises(ObjectsError) as excinfo:
                await verb()
            assert type(excinfo.value) is known
            assert (excinfo.value.provider_code in {code, ""}, excinfo.value.retryable) == (True, retryable)
        await objects.close()


async def test_a_storage_that_is_away_is_told_so_soon() -> None:
    objects = S3Objects(Bucket(BUCKET, "http://127.0.0.1:1", REGION), HeldCredentials(ADMIN))
    for verb in (
        lambda: objects.get("a"),
        lambda: objects.put("a", b"x"),
        lambda: objects.head("a"),
        lambda: objects.begin_multipart("a", part_bytes=PART),
    ):
        async with asyncio.timeout(60):
            with pytest.raises(ObjectsUnavailable) as excinfo:
                await verb()
        assert excinfo.value.retryable
    await objects.close()


async def test_a_download_that_is_cut_again_and_again_arrives_whole(s3: Objects, tmp_path: Path) -> None:
    assert isinstance(s3, S3Objects)
    data = hashlib.shake_128(b"cut").digest(24 * MEBIBYTE)
    await s3.put("a", data)
    async with before(s3_server().endpoint, lambda: 5 * MEBIBYTE) as proxy:
        behind = s3_server().at(proxy.url, s3._bucket.prefix)
        info = await behind.get_file("a", tmp_path / "out")
        await behind.close()
    assert proxy.cuts >= 4
    assert info.sha256 == hashlib.sha256(data).hexdigest()
    assert (tmp_path / "out").read_bytes() == data
    assert info.bytes_moved == len(data), "no byte is written twice"


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
    texts = [repr(credentials), str(credentials), f"{credentials}", repr(held)]
    objects = S3Objects(Bucket(BUCKET, s3_server().endpoint, REGION), held)
    signed_url = await objects.sign_get("a", 60)
    texts += [repr(objects), repr(signed_url), str(signed_url), f"{signed_url}", repr([signed_url])]
    for verb in (lambda: objects.get("a"), lambda: objects.begin_multipart("a", part_bytes=PART)):
        with pytest.raises(ObjectsError) as excinfo:
            await verb()
        error: BaseException | None = excinfo.value
        while error is not None:
            texts += [str(error), repr(error)]
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    texts += [record.getMessage() for record in caplog.records if record.name.startswith("callsheet")]
    await objects.close()
    for text in texts:
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
    with pytest.raises(ObjectsError) as excinfo:
        objects_from_url(url, environ={"S3_ACCESS_KEY_ID": "k", "S3_SECRET_ACCESS_KEY": "s"} if "/.." in url else {})
    assert "secret@" not in str(excinfo.value)


def test_parts_are_as_large_as_ten_thousand_of_them_need() -> None:
    for size in (0, 1, PART_BYTES, 10_000 * PART_BYTES, 10_000 * PART_BYTES + 1, 5 * 1024**4):
        part = part_bytes_for(size)
        assert part >= PART_BYTES
        assert part % MEBIBYTE == 0
        assert part * 10_000 >= size
