"""Credentials of a dead letter in its replay: still sealed, and readable for the replay's worker."""

from __future__ import annotations

from callsheet.engine import Engine, dead_letters
from callsheet.kernel import commands
from callsheet.kernel.job import Job
from callsheet.kernel.retry import JobError
from callsheet.store.protocol import ClaimRequest
from callsheet.vault import Secret, Vault
from callsheet.vault.keys import first_keys
from callsheet.vault.local import LocalKeyring
from callsheet.vault.rewrap import rewrap
from tests.store_driver import new_job

QUEUE = "transcode"


async def claimed(engine: Engine) -> Job:
    (job,) = await engine.claim(ClaimRequest("w", (QUEUE,)))
    return job


async def died(engine: Engine) -> Job:
    job = await claimed(engine)
    return await engine.settle_one(job, commands.fail(job, JobError("503", "away"), rand=0.0))


async def replayed(engine: Engine, job: Job) -> Job:
    """The copy of a dead letter, which is purged."""
    copy = await dead_letters.bring_back(engine, job.job_id)
    assert copy.job_id != job.job_id
    assert (await dead_letters.purge(engine, [job.claim])).done == 1
    return copy


async def letter_of(engine: Engine, vault: Vault, secret: Secret) -> Job:
    new = new_job(requester_id="acme", contract="euterpe", queue=QUEUE, max_attempts=1)
    await engine.enqueue([new._replace(credentials=await vault.seal(secret, new.job_id, "acme"))])
    return await died(engine)


async def test_the_credentials_of_a_dead_letter_open_in_its_replay(
    engine: Engine, vault: Vault, secret: Secret
) -> None:
    letter = await letter_of(engine, vault, secret)
    (before,) = await engine.store.credentials([letter.job_id])
    copy = await replayed(engine, letter)
    (after,) = await engine.store.credentials([copy.job_id])
    assert before is not None
    assert after == before._replace(job_id=copy.job_id), "nobody opens them on the way"
    assert (await vault.open(await claimed(engine))) == (secret, 1)


async def test_they_open_in_a_replay_of_a_replay(engine: Engine, vault: Vault, secret: Secret) -> None:
    first = await replayed(engine, await letter_of(engine, vault, secret))
    assert (await died(engine)).job_id == first.job_id
    await replayed(engine, await engine.get(first.job_id))
    assert (await vault.open(await claimed(engine))).secret == secret


async def test_newer_ones_take_their_place(engine: Engine, vault: Vault, secret: Secret) -> None:
    copy = await replayed(engine, await letter_of(engine, vault, secret))
    newer = Secret("newer")
    assert await vault.replace(copy.job_id, "acme", newer, expected_version=1) == 2
    assert await vault.open(await claimed(engine)) == (newer, 2)


async def test_newer_ones_of_the_dead_letter_go_with_its_replay(engine: Engine, vault: Vault, secret: Secret) -> None:
    letter = await letter_of(engine, vault, secret)
    newer = Secret("newer")
    await vault.replace(letter.job_id, "acme", newer, expected_version=1)
    await replayed(engine, letter)
    assert await vault.open(await claimed(engine)) == (newer, 2)


async def test_their_key_is_changed_as_any_others(engine: Engine, secret: Secret) -> None:
    keys = first_keys()
    vault = Vault(engine.store, LocalKeyring(keys))
    await replayed(engine, await letter_of(engine, vault, secret))
    vault.keyring = LocalKeyring(keys.with_new_key(in_use=True))
    progress, broken_job = await rewrap(vault)
    assert (progress.wrapped, broken_job) == (1, {})
    assert (await vault.open(await claimed(engine))).secret == secret
