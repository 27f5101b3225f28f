"""The folders of live jobs: named by ids only, removed without following anything."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from callsheet.contracts.aura import folders as folders_module
from callsheet.contracts.aura.folders import Folders, Hold
from callsheet.kernel.errors import InvalidInput, StoreError
from callsheet.kernel.job import Claim

JOB = "01900000-0000-7000-8000-0000000000aa"


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path / "root")


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", "/etc", "x" * 300, JOB.upper(), f"{JOB}/.."])
def test_only_ids_name_folders(folders: Folders, name: str) -> None:
    for attempt in (lambda: folders.make("temp", name), lambda: folders.remove(name)):
        with pytest.raises(InvalidInput):
            attempt()
    with pytest.raises(InvalidInput):
        folders.make("../temp", JOB)


def test_a_folder_is_for_this_user_only(folders: Folders) -> None:
    path = folders.make("temp", JOB)
    assert path == folders.root / "temp" / JOB
    assert path.stat().st_mode & 0o777 == 0o700
    assert folders.make("temp", JOB) == path  # a later attempt finds it


def test_removal_follows_no_link(folders: Folders, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "canary").write_text("alive")
    path = folders.make("temp", JOB)
    (path / "link").symlink_to(outside)
    os.link(outside / "canary", path / "hard")
    assert folders.remove(JOB)
    assert (outside / "canary").read_text() == "alive"
    assert not path.exists()
    (folders.root / "temp" / JOB).symlink_to(outside)
    assert folders.remove(JOB)
    assert (outside / "canary").read_text() == "alive"
    assert not (folders.root / "temp" / JOB).is_symlink()


def test_a_swapped_parent_is_not_entered(folders: Folders, tmp_path: Path) -> None:
    outside = tmp_path / "outside" / JOB
    outside.mkdir(parents=True)
    (outside / "canary").write_text("alive")
    folders.make("temp", JOB)
    (folders.root / "temp" / JOB).rmdir()
    (folders.root / "temp").rmdir()
    (folders.root / "temp").symlink_to(tmp_path / "outside")
    assert not folders.remove(JOB)
    assert (outside / "canary").read_text() == "alive"
    with pytest.raises(StoreError):
        folders.make("temp", JOB)


def test_a_swapper_at_work_gains_nothing(folders: Folders, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "canary").write_text("alive")
    stop = threading.Event()
    path = folders.make("temp", JOB)

    def swap() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                (path / "d").symlink_to(outside)
            with contextlib.suppress(OSError):
                (path / "d").unlink()

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(100):
            path.mkdir(exist_ok=True)
            (path / "e").mkdir(exist_ok=True)
            folders.remove(JOB)
    finally:
        stop.set()
        swapper.join()
    assert (outside / "canary").read_text() == "alive"


def test_what_cannot_be_removed_is_told_of_and_harms_nothing(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folders.make("temp", JOB)
    proxy = folders.make("proxy", JOB)

    def refused(name: str, *, dir_fd: int) -> None:
        if name == JOB and not (folders.root / "gone").exists():
            (folders.root / "gone").touch()
            raise PermissionError("not today")
        os.rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr("shutil.rmtree", refused)
    with caplog.at_level(logging.WARNING):
        assert not folders.remove(JOB)
    assert "not today" in caplog.text
    assert not proxy.exists()  # the other one went


def test_a_fresh_file_in_an_old_folder_is_no_orphan(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "root")
    job_id = str(uuid.uuid4())
    deep = folders.make("temp", job_id) / "deep"
    deep.mkdir()
    (deep / "fresh").write_bytes(b"x")
    for folder in (deep, deep.parent):
        os.utime(folder, (0, 0))
    now_s = (deep / "fresh").stat().st_mtime
    assert folders.remove_old(now_s) == 0
    assert (deep / "fresh").exists()
    assert folders.remove_old(now_s + 25 * 3600) == 1


HOLDS = """
import sys
from pathlib import Path
from callsheet.contracts.aura.folders import Folders, Hold
from callsheet.kernel.job import Claim
hold = Hold(Folders(Path(sys.argv[1])), Claim(sys.argv[2], 1))
hold.make()
print("held", flush=True)
sys.stdin.read()
"""
IN_THREE_DAYS_S = 72 * 3600.0


def test_a_folder_that_a_living_process_holds_is_no_orphan_however_old(folders: Folders) -> None:
    command = [sys.executable, "-c", HOLDS, str(folders.root), JOB]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        try:
            assert owner.stdout.readline() == "held\n"
            now_s = (folders.root / "temp" / JOB).stat().st_mtime
            assert folders.remove_old(now_s + IN_THREE_DAYS_S) == 0
            assert folders.exists(JOB)
        finally:
            owner.kill()
    assert folders.remove_old(now_s + 25 * 3600) == 1, "its owner is gone: its age decides"
    assert folders.remove_old(now_s + IN_THREE_DAYS_S) == 1
    assert not folders.exists(JOB)


def test_an_attempt_that_lost_its_claim_leaves_the_folders_of_the_next_one(folders: Folders) -> None:
    lost, next_one = Hold(folders, Claim(JOB, 1)), Hold(folders, Claim(JOB, 2))
    (theirs, shared), (ours, same) = lost.make(), next_one.make()
    assert (theirs.parent, shared) == (ours.parent, same) == (folders.root / "temp" / JOB, folders.root / "proxy" / JOB)
    assert theirs != ours
    lost.remove()
    assert ours.is_dir()
    assert shared.is_dir()
    next_one.remove()
    assert not folders.exists(JOB)


def test_a_folder_that_a_sweep_takes_meanwhile_is_made_again(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = folders_module._lock
    swept: list[bool] = []

    def lock_late(folder: int, how: int) -> bool:
        if not swept:
            swept.append(folders.remove(JOB))
        return lock(folder, how)

    monkeypatch.setattr(folders_module, "_lock", lock_late)
    temp, proxy = Hold(folders, Claim(JOB, 1)).make()
    assert swept == [True]
    assert temp.is_dir()
    assert proxy.is_dir()


def test_an_attempt_that_is_over_gets_no_folders(folders: Folders) -> None:
    hold = Hold(folders, Claim(JOB, 1))
    hold.remove()
    with pytest.raises(StoreError):
        hold.make()
    assert not folders.exists(JOB)
