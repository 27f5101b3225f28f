"""Objects in their contexts: in an app, in the doctor, with a shared signing secret, and under PyAV."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import av
import numpy as np
import pytest

from callsheet import Callsheet
from callsheet.cli.doctor.connections import check_objects
from callsheet.cli.doctor.findings import Mark
from callsheet.objects import Objects, Signer, UnknownObjects, objects_from_url, open_objects, signer_of
from callsheet.objects.signing import Claims
from tests import stores
from tests.seaweed import ADMIN, BUCKET, REGION, s3_server


@pytest.fixture
def s3_environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("S3_ENDPOINT", s3_server().endpoint)
    monkeypatch.setenv("S3_REGION", REGION)
    monkeypatch.setenv("S3_ACCESS_KEY", ADMIN.access_key_id)
    monkeypatch.setenv("S3_SECRET_KEY", ADMIN.secret_access_key)
    return monkeypatch


async def test_all_processes_on_a_store_have_one_signing_secret(url: str) -> None:
    opened = [await stores.open_store(url) for _ in range(2)]
    signers = await asyncio.gather(*(signer_of(store) for store in opened * 4))
    signed_url = signers[0].sign("GET", "a", Claims(2_000_000_000))
    query = [
        (name, value) for name, _, value in (pair.partition("=") for pair in signed_url.url.split("?")[1].split("&"))
    ]
    for signer in signers:
        assert signer.check("GET", "a", query) == Claims(2_000_000_000)
    for store in opened:
        await store.close()


async def test_signed_urls_lead_to_where_the_server_is_seen(tmp_path: Path) -> None:
    store = await stores.open_store("sqlite::memory:")
    for objects_url, start in (
        ("memory:", "/objects/a?"),
        ("memory:?public_url=https://x.example/", "https://x.example/objects/a?"),
    ):
        objects = await open_objects(objects_url, store)
        assert (await objects.sign_get("a", 60)).url.startswith(start)
    with pytest.raises(UnknownObjects, match="open_objects"):
        await objects_from_url("memory:").sign_get("a", 60)
    with pytest.raises(UnknownObjects):
        Signer(b"too short")
    await store.close()


async def test_an_app_gives_its_objects_to_its_tasks(tmp_path: Path) -> None:
    app = Callsheet("sqlite::memory:")
    with pytest.raises(UnknownObjects, match="CALLSHEET_OBJECTS_URL"):
        await app.objects()
    app.objects_url = f"file://{tmp_path / 'objects'}"
    await app.migrate()
    async with app:
        objects = await app.objects()
        await objects.put("a", b"x")
        assert await app.objects() is objects
        assert (tmp_path / "objects/a").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("database_url", "found"),
    [
        ("sqlite::memory:", "memory:"),
        ("postgresql://h/d", ""),
        ("redis://h", ""),
    ],
)
def test_only_a_sqlite_file_has_a_place_beside_it(database_url: str, found: str) -> None:
    assert Callsheet(database_url).default_objects_url() == found


def test_the_place_beside_a_file_is_named_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Callsheet("sqlite:///shop.db").default_objects_url() == (tmp_path / "shop-objects").as_uri()
    assert Callsheet(f"sqlite:///{tmp_path}/a b/x.db").default_objects_url() == (tmp_path / "a b/x-objects").as_uri()
    objects_from_url(Callsheet(f"sqlite:///{tmp_path}/a b/x.db").default_objects_url())


async def test_the_doctor_writes_reads_and_deletes(tmp_path: Path, s3_environ: pytest.MonkeyPatch) -> None:
    assert await check_objects(None) == []
    (missing,) = await check_objects(f"file://{tmp_path}/none")
    assert (missing.mark, (tmp_path / "none").exists()) == (Mark.WARNING, False)
    for url in (f"file://{tmp_path}", f"s3://{BUCKET}/doctor-was-here", "memory:"):
        (finding,) = await check_objects(url)
        assert finding.mark is Mark.GOOD, finding
    left = [info.key async for info in s3_server().objects(prefix="doctor-was-here").list()]
    assert left == [path.name for path in tmp_path.iterdir() if path.name != ".callsheet"] == []


async def test_the_doctor_says_what_is_wrong(s3_environ: pytest.MonkeyPatch) -> None:
    s3_environ.setenv("S3_SECRET_KEY", "a-wrong-secret")
    (refusal,) = await check_objects(f"s3://{BUCKET}")
    assert refusal.mark is Mark.BAD
    assert "SignatureDoesNotMatch" in refusal.text
    assert "S3_SECRET_ACCESS_KEY" in refusal.advice
    assert "a-wrong-secret" not in str(refusal)
    s3_environ.setenv("S3_ENDPOINT", "http://127.0.0.1:1")
    (away,) = await check_objects(f"s3://{BUCKET}")
    assert (away.mark, "S3_ENDPOINT" in away.advice) == (Mark.BAD, True)
    s3_environ.delenv("S3_SECRET_KEY")
    for url in (f"s3://{BUCKET}", "ftp://x", "file:relative"):
        (finding,) = await check_objects(url)
        assert finding.mark is Mark.BAD


async def test_a_film_is_read_where_it_lies(objects: Objects) -> None:
    """PyAV seeks in the object itself; PyAV reads ranges instead of downloading whole files."""
    memory = io.BytesIO()
    with av.open(memory, "w", format="mp4") as film:
        stream = film.add_stream("mpeg4", rate=10, options={"g": "5"})
        stream.width, stream.height = 64, 48
        for number in range(50):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), number * 5, np.uint8), format="rgb24")
            film.mux(stream.encode(frame))
        film.mux(stream.encode())
    await objects.put("film.mp4", memory.getvalue())

    def look() -> tuple[int, float]:
        with objects.open_reader("film.mp4") as file, av.open(file, "r") as film:
            count = film.streams.video[0].frames
            film.seek(4 * av.time_base)
            return count, next(film.decode(video=0)).time

    count, at = await asyncio.to_thread(look)
    assert count == 50
    assert 3.4 <= at <= 4.0
