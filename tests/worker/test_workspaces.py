"""Workspaces that killed workers have left: a folder's lock holder decides on its deletion, not the store."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callsheet import Callsheet, Context
from callsheet.engine.ids import new_id
from callsheet.kernel.job import Claim
from callsheet.store.protocol import ClaimRequest
from callsheet.worker.workspace import ORPHAN_S, Workspace, sweep
from tests import stores
from tests.running_worker import until, working

SOURCES = Path(__file__).parents[2] / "src"
HOLD = """
import sys, time
from pathlib import Path
from callsheet.kernel.job import Claim
from callsheet.worker.workspace import Workspace
folder = Workspace.create(Path(sys.argv[1]), Claim(sys.argv[2], int(sys.argv[3]))).path
(folder / "source").write_text("half of it")
print("made", flush=True)
time.sleep(600)
"""


def holder(root: Path, claim: Claim) -> subprocess.Popen[bytes]:
    """A process with an attempt in its own workspace."""
    command = [sys.executable, "-c", HOLD, str(root), claim.job_id, str(claim.claim_version)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SOURCES)})
    assert process.stdout is not None
    assert process.stdout.readline() == b"made\n"
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def folder_of_a_killed_process(root: Path, claim: Claim) -> Path:
    kill(holder(root, claim))
    path = root / f"{claim.job_id}.{claim.claim_version}"
    assert (path / "source").exists()
    return path


async def test_a_killed_workers_folder_of_a_purged_job_goes_while_a_worker_runs(
    small: Callsheet, tmp_path: Path
) -> None:
    @small.task
    async def work() -> None: ...

    first = folder_of_a_killed_process(tmp_path / "root", Claim(new_id(), 1))
    async with working(small, workspaces=tmp_path / "root"):
        await until(lambda: not first.exists())
        later = folder_of_a_killed_process(tmp_path / "root", Claim(new_id(), 7))
        await until(lambda: not later.exists())
        await until(lambda: list((tmp_path / "root").iterdir()) == [])


async def test_a_killed_workers_folder_goes_when_its_job_has_ended_while_a_worker_runs(
    small: Callsheet, tmp_path: Path
) -> None:
    @small.task
    async def work() -> None: ...

    job = await work.enqueue()
    engine = await small.engine()
    (claimed_job,) = await engine.claim(ClaimRequest("killed", limit=1))
    folder = folder_of_a_killed_process(tmp_path / "root", claimed_job.claim)
    beside = folder_of_a_killed_process(tmp_path / "root", Claim(new_id(), 1))
    async with working(small, workspaces=tmp_path / "root"):
        await until(lambda: not beside.exists())
        assert folder.exists(), "its claim still holds"
        await engine.cancel(job.id, now=claimed_job.lease_expires_at)
        await until(lambda: not folder.exists())


async def test_a_folder_of_a_living_process_is_never_taken_by_workers_of_another_store(
    small: Callsheet, tmp_path: Path
) -> None:
    """Two stores, one folder for workspaces: neither store knows the jobs of the other."""
    root, go = tmp_path / "root", asyncio.Event()
    places: list[Path] = []

    @small.task
    async def long(ctx: Context) -> None:
        places.append(ctx.workspace)
        os.utime(places[0], (0, 0))  # nobody has touched it for years
        await go.wait()
        assert places[0].exists()

    async with Callsheet(stores.fresh_url("sqlite")) as other, working(small, workspaces=root):
        other.task(name="nothing")(_nothing)
        job = await long.enqueue()
        await until(lambda: places)
        async with working(other, workspaces=root):
            gone = folder_of_a_killed_process(root, Claim(new_id(), 1))
            await until(lambda: not gone.exists())
            assert places[0].exists()
        go.set()
        await job.result(timeout=60)
    assert list(root.iterdir()) == []


async def _nothing() -> None: ...


async def test_a_living_processs_folder_is_left_when_its_claim_is_lost_and_its_job_purged(tmp_path: Path) -> None:
    root, claim = tmp_path / "root", Claim(new_id(), 3)
    process = holder(root, claim)
    try:
        far = time.time() + 10 * 86_400
        assert await sweep(root, None, now_s=far) == 0
        assert (root / f"{claim.job_id}.3" / "source").exists()
    finally:
        kill(process)
    assert await sweep(root, None) == 1
    assert list(root.iterdir()) == []


async def test_the_next_attempt_removes_what_a_killed_one_has_left_and_nothing_of_living_ones(tmp_path: Path) -> None:
    root, job_id = tmp_path / "root", new_id()
    stale = folder_of_a_killed_process(root, Claim(job_id, 1))
    process = holder(root, Claim(job_id, 2))  # lost its claim, and does not know yet
    another = folder_of_a_killed_process(root, Claim(new_id(), 1))
    try:
        mine = Workspace.create(root, Claim(job_id, 3))
        assert not stale.exists()
        assert (root / f"{job_id}.2" / "source").exists()
        assert another.exists()
        mine.remove()
    finally:
        kill(process)


async def test_a_folder_without_a_lock_of_an_unknown_job_is_left_for_a_day(tmp_path: Path) -> None:
    path = tmp_path / f"{new_id()}.1"
    (path / "inner").mkdir(parents=True)
    changes = path.stat().st_mtime
    assert await sweep(tmp_path, None, now_s=changes + ORPHAN_S - 1) == 0
    assert path.exists()
    assert await sweep(tmp_path, None, now_s=changes + ORPHAN_S) == 1
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_could_not_be_made_is_held_by_nobody(tmp_path: Path) -> None:
    claim = Claim(new_id(), 1)
    (tmp_path / f"{claim.job_id}.1").mkdir()
    with pytest.raises(FileExistsError):
        Workspace.create(tmp_path, claim)
    assert await sweep(tmp_path, None) == 1
    assert list(tmp_path.iterdir()) == []


async def test_a_lock_without_a_folder_goes_and_one_that_is_held_stays(tmp_path: Path) -> None:
    held = Workspace.create(tmp_path, Claim(new_id(), 1))
    held.path.rmdir()
    lone = tmp_path / f"{new_id()}.1.lock"
    lone.touch(mode=0o600)
    assert await sweep(tmp_path, None) == 1
    assert [path.name for path in tmp_path.iterdir()] == [f"{held.name}.lock"]
    held.remove()


@pytest.mark.parametrize("fault", ["lock is a link", "folder is a link"])
async def test_a_sweep_follows_no_link(tmp_path: Path, fault: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir(mode=0o700)
    (outside / "inner").mkdir(parents=True)
    name = f"{new_id()}.1"
    if fault == "lock is a link":
        (root / f"{name}.lock").symlink_to(outside / "inner")
    else:
        (root / name).symlink_to(outside)
        (root / f"{name}.lock").touch()
    await sweep(root, None)
    assert (outside / "inner").is_dir()
