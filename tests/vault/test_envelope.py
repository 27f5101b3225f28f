from __future__ import annotations

import base64
import itertools
import secrets
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from callsheet.kernel import commands
from callsheet.kernel.errors import StaleClaim
from callsheet.kernel.job import Credentials, Envelope
from callsheet.store.protocol import ClaimRequest
from callsheet.vault import Binding, Secret, Vault, envelope
from callsheet.vault.errors import CredentialsGone, RetiredKek, Tampered, UnknownKek, VaultError
from callsheet.vault.keys import Keys, first_keys
from callsheet.vault.local import LocalKeyring
from tests.store_driver import new_job
from tests.stores import open_store
from tests.vault import two_keys

JOB = "00000000-0000-0000-0000-000000000001"
OTHER = "00000000-0000-0000-0000-000000000002"
BINDING = Binding(JOB, "acme", 1)
TEXTS = ("storage_creds_encrypted", "storage_creds_dek_wrapped")


class Sealed:
    """A vault without a store, and credentials that it has sealed."""

    def __init__(self) -> None:
        self.vault = Vault(None, LocalKeyring(first_keys()))  # type: ignore[arg-type] # wraps are counted in a store
        self.vault._wraps._left = {f"k{n}": 10**6 for n in range(1, 9)}
        self.text = secrets.token_urlsafe(24)

    async def kept(self, binding: Binding = BINDING) -> Credentials:
        made = await self.vault.seal(Secret(self.text), *binding)
        return Credentials(binding.job_id, binding.requester_id, made)

    async def opens(self, kept: Credentials) -> bool:
        try:
            found = await self.vault._opened(kept)
        except VaultError:
            return False
        assert found.reveal() == self.text
        return True


def changed(kept: Credentials, **fields: Any) -> Credentials:
    return kept._replace(envelope=kept.envelope._replace(**fields))


async def test_what_was_sealed_opens() -> None:
    sealed = Sealed()
    kept = await sealed.kept()
    assert await sealed.opens(kept)
    assert kept.envelope._replace(storage_creds_encrypted="", storage_creds_dek_wrapped="") == Envelope(
        1, "", "", "k1", 1
    )


async def test_every_flipped_bit_of_both_layers_fails_closed() -> None:
    sealed = Sealed()
    kept = await sealed.kept()
    for column in TEXTS:
        raw = base64.b64decode(getattr(kept.envelope, column))
        for i, bit in itertools.product(range(len(raw)), (1, 128)):
            flipped = raw[:i] + bytes([raw[i] ^ bit]) + raw[i + 1 :]
            assert not await sealed.opens(changed(kept, **{column: base64.b64encode(flipped).decode()})), (column, i)


@pytest.mark.parametrize("more", range(3))  # so that base64 has no, two and four idle bits at its end
async def test_every_changed_character_as_it_is_stored_fails_closed(more: int) -> None:
    """Also those that base64 reads as the same bytes: idle bits at the end, white space, another alphabet."""
    sealed = Sealed()
    sealed.text += "x" * more
    kept = await sealed.kept()
    for column in TEXTS:
        text = getattr(kept.envelope, column)
        for i in range(len(text)):
            for instead in ("A" if text[i] != "A" else "B", chr(ord(text[i]) ^ 1), "", "\n", "-", "ä"):
                other = text[:i] + instead + text[i + 1 :]
                assert not await sealed.opens(changed(kept, **{column: other})), (column, i, instead)
        for other in ("", text + "=", text + "\n", text + text, text.rstrip("="), text[: len(text) // 2]):
            assert other == text or not await sealed.opens(changed(kept, **{column: other})), (column, other)


async def test_credentials_open_only_where_they_were_sealed_for() -> None:
    sealed = Sealed()
    kept = await sealed.kept()
    assert not await sealed.opens(kept._replace(job_id=OTHER))
    assert not await sealed.opens(kept._replace(requester_id="evil"))
    assert not await sealed.opens(kept._replace(requester_id=""))
    assert not await sealed.opens(changed(kept, credential_version=2))
    assert not await sealed.opens(changed(kept, storage_creds_encryption_version=2))
    assert not await sealed.opens(changed(kept, storage_creds_kek_id="k2"))


async def test_no_column_serves_in_the_place_of_another() -> None:
    sealed = Sealed()
    mine, second = await sealed.kept(), await sealed.kept()
    theirs = await sealed.kept(Binding(OTHER, "acme", 1))
    old = await sealed.kept(Binding(JOB, "acme", 2))
    for other in (second, theirs, old):
        for column in TEXTS:
            assert not await sealed.opens(changed(mine, **{column: getattr(other.envelope, column)}))
    both = {column: getattr(mine.envelope, swapped) for column, swapped in zip(TEXTS, reversed(TEXTS), strict=True)}
    assert not await sealed.opens(changed(mine, **both))
    assert not await sealed.opens(mine._replace(envelope=theirs.envelope))


OTHERS = [BINDING._replace(job_id=OTHER), BINDING._replace(requester_id="evil"), BINDING._replace(credential_version=2)]


@pytest.mark.parametrize("other", OTHERS)
async def test_each_layer_alone_is_bound(other: Binding) -> None:
    """With the right key in hand: neither layer leans on the other."""
    dek, keyring = envelope.new_dek(), LocalKeyring(first_keys())
    text = envelope.encrypt(Secret("the text"), dek, BINDING)
    assert envelope.decrypt(text, dek, BINDING).reveal() == "the text"
    with pytest.raises(Tampered):
        envelope.decrypt(text, dek, other)
    kek_id, wrapped = await keyring.wrap(dek, BINDING)
    assert await keyring.unwrap(kek_id, wrapped, BINDING) == dek
    with pytest.raises(Tampered):
        await keyring.unwrap(kek_id, wrapped, other)


def test_no_two_bindings_have_the_same_associated_data() -> None:
    parts = ["", "a", "ab", "b", "1", "11"]
    made = [Binding(j, r, v).aad("dek", k) for j, r, v, k in itertools.product(parts, parts, (1, 11), parts)]
    assert len(set(made)) == len(made)
    assert Binding("a", "b", 1).aad("dek") != Binding("a", "b", 1).aad("content")


def test_one_ciphertext_for_two_keys_is_refused() -> None:
    """GCM itself accepts it under both, as the first half shows."""
    nonce, aad = secrets.token_bytes(12), BINDING.aad("content", envelope.HEAD.hex())
    deks = secrets.token_bytes(32), secrets.token_bytes(32)
    keys = envelope._derived(deks[0])[0], envelope._derived(deks[1])[0]
    crafted = two_keys.sealed_for_both(keys, nonce, aad)
    first, second = (AESGCM(key).decrypt(nonce, crafted, aad) for key in keys)
    assert first != second
    refused = 0
    for committed in deks:
        text = envelope.to_text(envelope.HEAD + envelope._derived(committed)[1] + nonce + crafted)
        for dek in deks:
            try:
                envelope.decrypt(text, dek, BINDING)
            except Tampered as error:
                refused += "another key" in str(error)  # the one key that it is committed to opens it, to noise
            else:
                assert dek is committed
    assert refused == 2


async def test_a_data_key_is_used_once() -> None:
    sealed = Sealed()
    made = [(await sealed.kept()).envelope for _ in range(50)]
    for column in TEXTS:
        assert len({getattr(one, column) for one in made}) == 50


async def test_a_retired_and_an_unknown_key_are_told_apart() -> None:
    sealed = Sealed()
    kept = await sealed.kept()
    keys = sealed.vault.keyring._keys  # type: ignore[attr-defined]
    two = keys.with_new_key(in_use=True)
    sealed.vault.keyring = LocalKeyring(two)
    assert await sealed.opens(kept)
    assert (await sealed.kept()).envelope.storage_creds_kek_id == "k2"
    sealed.vault.keyring = LocalKeyring(Keys(two.keys, 2, least=2))  # the minimum alone refuses
    with pytest.raises(RetiredKek, match="minimum is k2"):
        await sealed.vault._opened(kept)
    sealed.vault.keyring = LocalKeyring(Keys({2: two.keys[2]}, 2))
    with pytest.raises(UnknownKek, match="no key k1"):
        await sealed.vault._opened(kept)


async def test_credentials_open_for_the_claim_that_is_held_and_nobody_else(vault: Vault, secret: Secret) -> None:
    new = new_job(requester_id="acme")
    await vault.store.enqueue([new._replace(credentials=await vault.seal(secret, new.job_id, "acme"))])
    (queued,) = await vault.store.get([new.job_id])
    assert queued is not None
    with pytest.raises(StaleClaim):
        await vault.open(queued)
    (job,) = await vault.store.claim(ClaimRequest("w"))
    opened = await vault.open(job)
    assert opened.secret == secret
    assert opened.credential_version == 1
    with pytest.raises(StaleClaim):
        await vault.open(job._replace(claim_version=job.claim_version - 1))
    await vault.store.settle([commands.succeed(job)])
    with pytest.raises(StaleClaim):
        await vault.open(job)


async def test_a_job_without_credentials_says_so(vault: Vault) -> None:
    await vault.store.enqueue([new_job()])
    (job,) = await vault.store.claim(ClaimRequest("w"))
    assert await vault.version(job.job_id) == 0
    with pytest.raises(CredentialsGone):
        await vault.open(job)


async def test_a_moved_row_does_not_open_in_a_real_store(secret: Secret) -> None:
    store = await open_store("sqlite::memory:")
    vault = Vault(store, LocalKeyring(first_keys()))
    mine, theirs = new_job(requester_id="acme"), new_job(requester_id="evil")
    for new in (mine, theirs):
        sealed = await vault.seal(secret, new.job_id, new.requester_id)
        await store.enqueue([new._replace(credentials=sealed)])
    rows = await store.credentials([mine.job_id, theirs.job_id])
    assert rows[0] is not None
    assert rows[1] is not None
    assert await store.replace_credentials([(rows[1], rows[1]._replace(envelope=rows[0].envelope))]) == [True]
    jobs = {job.job_id: job for job in await store.claim(ClaimRequest("w", limit=2))}
    assert (await vault.open(jobs[mine.job_id])).secret == secret
    with pytest.raises(Tampered):
        await vault.open(jobs[theirs.job_id])
    await store.close()
