from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from callsheet.media.binaries import ffmpeg
from tests.media.made_up import ALL, MadeUp, made_up
from tests.seaweed import ADMIN, BUCKET, REGION, s3_server


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], MadeUp]:
    """A made-up video by its name, films in half their size: most of the work is making HLS of them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made_up"
    folder.mkdir(exist_ok=True)
    return lambda name: _halved(made_up(name, folder), base) if name in ALL else made_up(name, folder)


def _halved(film: MadeUp, folder: Path) -> MadeUp:
    small = folder / f"half-{film.name}.mp4"
    if not small.exists():
        command = [str(ffmpeg().path), "-v", "error", "-i", str(film.path), "-vf", "scale=640:360", "-y", str(small)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return film._replace(path=small, width=640, height=360)


@pytest.fixture
def s3_url(monkeypatch: pytest.MonkeyPatch) -> str:
    """A place in a real S3, by the contract's own variables."""
    monkeypatch.setenv("S3_ENDPOINT", s3_server().endpoint)
    monkeypatch.setenv("S3_REGION", REGION)
    monkeypatch.setenv("S3_ACCESS_KEY_ID", ADMIN.access_key_id)
    monkeypatch.setenv("S3_SECRET_ACCESS_KEY", ADMIN.secret_access_key)
    return f"s3://{BUCKET}/cortana-{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["sqlite-folder", "postgres-s3"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A store, and where objects are: the smallest and the largest way to run."""
    store, _, kind = str(request.param).partition("-")
    return store, request.getfixturevalue("s3_url") if kind == "s3" else f"file://{tmp_path / 'objects'}"
