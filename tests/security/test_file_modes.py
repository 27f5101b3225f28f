"""Files with secrets are readable by the owner only, whatever the umask and the previous mode."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from callsheet.cli.demo.home import Home
from callsheet.cli.doctor.connections import check_store
from callsheet.kernel.errors import UnknownStore
from callsheet.llm.vector_stores import SqliteVectors
from callsheet.store import store_from_url
from callsheet.store.sqlite import files
from tests import stores


@pytest.fixture(autouse=True, params=[0o000, 0o022])
def mask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("driver", ["sqlite", "libsql"])
async def test_a_new_database_is_its_owner_s_alone(tmp_path: Path, driver: str) -> None:
    store = await stores.open_store(f"{driver}:///{tmp_path}/jobs.db")
    assert {"jobs.db", "jobs.db-wal", "jobs.db-shm"} <= set(modes(tmp_path))
    assert set(modes(tmp_path).values()) == {0o600}
    await store.close()
    assert set(modes(tmp_path).values()) == {0o600}


async def test_a_database_that_others_could_read_is_closed_to_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    first = await stores.open_store(url)
    for path in tmp_path.iterdir():
        path.chmod(0o666)
    second = await stores.open_store(url)
    assert set(modes(tmp_path).values()) == {0o600}
    assert "others could read" in caplog.text
    await second.close()
    await first.close()


def test_a_database_is_never_open_to_others_on_its_way(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    files.make_private(str(path), 0o600)
    assert modes(tmp_path) == {"jobs.db": 0o600}


async def test_a_database_behind_a_link_is_private_too(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "jobs.db")
    store = await stores.open_store(f"sqlite:///{tmp_path}/link.db")
    assert set(modes(tmp_path / "real").values()) == {0o600}
    await store.close()


async def test_a_group_is_let_in_where_the_url_says_so(tmp_path: Path) -> None:
    for group, mode in (("read", 0o640), ("write", 0o660)):
        folder = tmp_path / group
        folder.mkdir()
        store = await stores.open_store(f"sqlite:///{folder}/jobs.db?group={group}")
        assert set(modes(folder).values()) == {mode}
        await store.close()
    with pytest.raises(UnknownStore, match="group=read"):
        store_from_url("sqlite:///jobs.db?group=all")


async def test_passages_are_private_too(tmp_path: Path) -> None:
    vectors = await SqliteVectors.open(f"sqlite:///{tmp_path}/vectors.db")
    assert set(modes(tmp_path).values()) == {0o600}
    await vectors.close()


async def test_the_doctor_tells_of_a_file_that_is_not_ours_to_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    await (await stores.open_store(url)).close()
    (tmp_path / "jobs.db").chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert [finding for finding in await check_store(url) if "not yours to close" in finding.text]


def test_the_demo_s_key_is_its_owner_s_alone(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir(mode=0o755)
    for name in ("state.json", "state.part"):
        (folder / name).write_text("{}", "utf-8")
        (folder / name).chmod(0o644)
    home = Home(folder)
    home.save(key="secret")
    home.keyring()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert set(modes(folder).values()) == {0o600}
