from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callsheet.engine import Engine
from callsheet.kernel.job import Credentials
from callsheet.vault import Secret, Vault
from callsheet.vault.errors import CredentialsConflict, UnknownKek
from callsheet.vault.keys import Keys, first_keys, write_file
from callsheet.vault.local import FileKeyring, LocalKeyring
from callsheet.vault.rewrap import Progress, rewrap
from tests.store_driver import new_job

DEEP = "CALLSHEET_DEEP" in os.environ
ROWS = 100_000 if DEEP else 400
BATCH = 200 if DEEP else 15
KILLS = 5 if DEEP else 2


async def filled(vault: Vault, rows: int) -> dict[str, str]:
    """New jobs with credentials; each one's text by its id."""
    texts: dict[str, str] = {}
    for first in range(0, rows, 500):
        batch = []
        for n in range(first, min(first + 500, rows)):
            new = new_job(requester_id=f"r{n % 7}")
            texts[new.job_id] = f"secret {n}"
            envelope = await vault.seal(Secret(texts[new.job_id]), new.job_id, new.requester_id)
            batch.append(new._replace(credentials=envelope))
        await vault.store.enqueue(batch)
    return texts


async def all_open(vault: Vault, texts: dict[str, str]) -> None:
    credentials = await vault.store.credentials(list(texts))
    for row in credentials:
        assert row is not None
        assert (await vault._decrypted_secret(row)).reveal() == texts[row.job_id]


async def walk_until_killed(url: str, keys: Path) -> bool:
    """Start a rewrap and kill it with SIGKILL half-way; return whether it was killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.vault.walker", url, str(keys), str(BATCH)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "src:."},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    async for line in process.stdout:
        done_count, total = map(int, line.split())
        if 0 < done_count < total:
            process.kill()
            break
        process.stdin.write(b"\n")
    return await process.wait() == -9


class Crowd:
    """Readers and writers of credentials while they are wrapped anew."""

    def __init__(self, vault: Vault, texts: dict[str, str]) -> None:
        self.vault = vault
        self.texts = texts
        self.opened = self.replaced = 0
        self.stopped = False

    @contextlib.asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        ids = list(self.texts)
        half = len(ids) // 2
        tasks = [asyncio.create_task(self._replace(ids[:half])), asyncio.create_task(self._open(ids[half:]))]
        yield
        self.stopped = True
        await asyncio.gather(*tasks)

    async def _replace(self, ids: list[str]) -> None:
        while not self.stopped:
            job_id = random.choice(ids)
            (credentials,) = await self.vault.store.credentials([job_id])
            assert credentials is not None
            text = f"again {random.random()}"
            version = await self.vault.replace(job_id, credentials.requester_id, Secret(text))
            assert version == credentials.envelope.credential_version + 1
            self.texts[job_id] = text
            self.replaced += 1

    async def _open(self, ids: list[str]) -> None:
        while not self.stopped:
            for row in await self.vault.store.credentials(random.sample(ids, 10)):
                assert row is not None
                assert (await self.vault._decrypted_secret(row)).reveal() == self.texts[row.job_id]
                self.opened += 1


@pytest.mark.timeout(1200 if DEEP else 120)
async def test_a_walk_that_is_killed_goes_on_while_all_others_work(url: str, engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_file(path, first_keys())
    async with Vault(engine.store, FileKeyring(path)) as vault:
        texts = await filled(vault, ROWS)
        assert await engine.store.credential_keks() == {"k1": ROWS}
        before = vault.keyring._keys  # type: ignore[attr-defined]
        write_file(path, before.with_new_key(in_use=True))
        crowd = Crowd(vault, texts)
        async with crowd.busy():
            for _ in range(KILLS):
                assert await walk_until_killed(url, path), "the walk ended before it was killed"
                left = (await engine.store.credential_keks())["k1"]
                assert 0 < left < ROWS
            progress, broken_job = await rewrap(vault)
        assert broken_job == {}
        assert progress.wrapped > 0
        assert crowd.opened > 0
        assert crowd.replaced > 0
        assert await engine.store.credential_keks() == {"k2": ROWS}
        only_new = Keys({2: FileKeyring(path)._keys.keys[2]}, 2, least=2)  # the old key is destroyed
        await all_open(Vault(engine.store, LocalKeyring(only_new)), texts)


async def test_what_a_writer_replaced_meanwhile_is_left_to_it(vault: Vault) -> None:
    texts = await filled(vault, 3)
    first, *_ = texts
    (credentials,) = await vault.store.credentials([first])
    assert credentials is not None
    late = await vault.rewrap(credentials)
    await vault.replace(first, credentials.requester_id, Secret("newer"), expected_version=1)
    assert await vault.store.replace_credentials([(credentials, late)]) == [False]
    await all_open(vault, {**texts, first: "newer"})


async def test_a_replacement_wins_over_a_walk_in_between(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk wraps the row anew after the writer has read it; the writer re-reads the row and continues."""
    texts = await filled(vault, 1)
    (job_id,) = texts
    seal = vault.seal

    async def walked_meanwhile(*args: object) -> object:
        monkeypatch.undo()
        (credentials,) = await vault.store.credentials([job_id])
        assert credentials is not None
        assert await vault.store.replace_credentials([(credentials, await vault.rewrap(credentials))]) == [True]
        return await seal(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(vault, "seal", walked_meanwhile)
    assert await vault.replace(job_id, "r0", Secret("new"), expected_version=1) == 2
    await all_open(vault, {job_id: "new"})
    with pytest.raises(CredentialsConflict, match="version 2"):
        await vault.replace(job_id, "r0", Secret("late"), expected_version=1)


async def test_what_cannot_be_opened_is_told_of_and_holds_nothing_up(vault: Vault) -> None:
    texts = await filled(vault, 5)
    broken_job, foreign, *_ = texts
    changes: list[tuple[str, dict[str, Any]]] = [
        (broken_job, {"storage_creds_dek_wrapped": "AAAA"}),
        (foreign, {"storage_creds_kek_id": "k9"}),
    ]
    for job_id, change in changes:
        (credentials,) = await vault.store.credentials([job_id])
        assert credentials is not None
        becomes = credentials._replace(envelope=credentials.envelope._replace(**change))
        assert await vault.store.replace_credentials([(credentials, becomes)]) == [True]
    keys = vault.keyring._keys  # type: ignore[attr-defined]
    vault.keyring = LocalKeyring(keys.with_new_key(in_use=True))
    seen: list[Progress] = []
    progress, faults = await rewrap(vault, seen.append, batch=2)
    assert set(faults) == {broken_job, foreign}
    assert (progress.wrapped, progress.broken) == (3, 2)
    assert seen[-1] == progress
    assert progress.done == progress.total == 5
    assert await vault.store.credential_keks() == {"k1": 1, "k2": 3, "k9": 1}
    with pytest.raises(UnknownKek):
        (credentials,) = await vault.store.credentials([foreign])
        assert isinstance(credentials, Credentials)
        await vault._decrypted_secret(credentials)


async def test_rows_that_a_late_process_writes_under_the_old_key_are_found_too(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with the old keyring writes while the rewrap is finishing."""
    await filled(vault, 3)
    keys = vault.keyring._keys  # type: ignore[attr-defined]
    late = Vault(vault.store, LocalKeyring(keys))
    vault.keyring = LocalKeyring(keys.with_new_key(in_use=True))
    written_text = False
    under = vault.store.credentials_under

    async def then_write(kek_id: str, *, after: str = "", limit: int = 100) -> list[Credentials]:
        nonlocal written_text
        page = await under(kek_id, after=after, limit=limit)
        if not page and not written_text:
            written_text = True
            await filled(late, 2)
        return page

    monkeypatch.setattr(vault.store, "credentials_under", then_write)
    progress, _ = await rewrap(vault)
    assert progress.wrapped == 5
    assert await vault.store.credential_keks() == {"k2": 5}
