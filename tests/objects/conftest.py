from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from callsheet.objects import Objects, Signer, objects_from_url
from tests.seaweed import s3_server

SECRET = b"the signing secret of the tests!"
KINDS = ("memory", "folder", "s3")
MEBIBYTE = 1024 * 1024
PART = 5 * MEBIBYTE  # the least that an S3 takes


def browser() -> httpx2.AsyncClient:
    """A client that knows only the URL."""
    return httpx2.AsyncClient(verify=False, timeout=60)


def made(kind: str, folder: Path) -> Objects:
    """Empty objects of a kind."""
    match kind:
        case "memory":
            return objects_from_url("memory:", signer=Signer(SECRET))
        case "folder":
            return objects_from_url(f"file://{folder / 'objects'}", signer=Signer(SECRET))
        case "s3":
            return s3_server().objects()
    raise ValueError(kind)


@pytest.fixture(params=KINDS)
async def objects(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Objects]:
    """One `Objects` interface per storage."""
    async with made(request.param, tmp_path) as objects:
        yield objects


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Objects]:
    async with made("folder", tmp_path) as objects:
        yield objects


@pytest.fixture
async def s3() -> AsyncIterator[Objects]:
    async with s3_server().objects() as objects:
        yield objects
