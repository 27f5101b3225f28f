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
    """A vault without a store, with sealed credentials."""

    def __init__(self) -> None:
        self.vault = Vault(None, LocalKeyring(first_keys()))  # type: ignore[arg-type] # wraps are counted in a store
        self.vault._wraps._left = {f"k{n}": 10**6 for n in range(1, 9)}
        self.text = secrets.token_urlsafe(24)

    async def kept(self, binding: Binding = BINDING) -> Credentials:
        result = await self.vault.seal(Secret(self.text), *binding)
        return Credentials(binding.job_id, binding.requester_id, result)

    async def opens(self, credentials: Credentials) -> bool:
        try:
            plaintext = await self.vault._decrypted_secret(credentials)
        except VaultError:
            return False
        assert plaintext.reveal() == self.text
        return True


def changed(credentials: Credentials, **fields: Any) -> Credentials:
    return credentials._replace(envelope=credentials.envelope._replace(**fields))


async def test_what_was_sealed_opens() -> None:
    secret = Sealed()
    credentials = await secret.kept()
    assert await secret.opens(credentials)
    assert credentials.envelope._replace(storage_creds_encrypted="", storage_creds_dek_wrapped="") == Envelope(
        1, "", "", "k1", 1
    )


async def test_every_flipped_bit_of_both_layers_fails_closed() -> None:
    secret = Sealed()
    credentials = await secret.kept()
    for column in TEXTS:
        raw = base64.b64decode(getattr(credentials.envelope, column))
        for i, bit in itertools.product(range(len(raw)), (1, 128)):
            flipped_text = raw[:i] + bytes([raw[i] ^ bit]) + raw[i + 1 :]
            assert not await secret.opens(changed(credentials, **{column: base64.b64encode(flipped_text).decode()})), (
                column,
                i,
            )


@pytest.mark.parametrize("more", range(3))  # so that base64 has no, two and four idle bits at its end
async def test_every_changed_character_as_it_is_stored_fails_closed(more: int) -> None:
    """This includes texts that base64 decodes to equal bytes: idle bits at the end, white space, another alphabet."""
    secret = Sealed()
    secret.text += "x" * more
    credentials = await secret.kept()
    for column in TEXTS:
        text = getattr(credentials.envelope, column)
        for i in range(len(text)):
            for instead in ("A" if text[i] != "A" else "B", chr(ord(text[i]) ^ 1), "", "\n", "-", "ä"):
                other = text[:i] + instead + text[i + 1 :]
                assert not await secret.opens(changed(credentials, **{column: other})), (column, i, instead)
        for other in ("", text + "=", text + "\n", text + text, text.rstrip("="), text[: len(text) // 2]):
            assert other == text or not await secret.opens(changed(credentials, **{column: other})), (column, other)


async def test_credentials_open_only_where_they_were_sealed_for() -> None:
    secret = Sealed()
    credentials = await secret.kept()
    assert not await secret.opens(credentials._replace(job_id=OTHER))
    assert not await secret.opens(credentials._replace(requester_id="evil"))
    assert not await secret.opens(credentials._replace(requester_id=""))
    assert not await secret.opens(changed(credentials, credential_version=2))
    assert not await secret.opens(changed(credentials, storage_creds_encryption_version=2))
    assert not await secret.opens(changed(credentials, storage_creds_kek_id="k2"))


async def test_no_column_serves_in_the_place_of_another() -> None:
    secret = Sealed()
    mine, second = await secret.kept(), await secret.kept()
    theirs = await secret.kept(Binding(OTHER, "acme", 1))
    old = await secret.kept(Binding(JOB, "acme", 2))
    for other in (second, theirs, old):
        for column in TEXTS:
            assert not await secret.opens(changed(mine, **{column: getattr(other.envelope, column)}))
    both = {column: getattr(mine.envelope, swapped) for column, swapped in zip(TEXTS, reversed(TEXTS), strict=True)}
    assert not await secret.opens(changed(mine, **both))
    assert not await secret.opens(mine._replace(envelope=theirs.envelope))


OTHERS = [BINDING._replace(job_id=OTHER), BINDING._replace(requester_id="evil"), BINDING._replace(credential_version=2)]


@pytest.mark.parametrize("other", OTHERS)
async def test_each_layer_alone_is_bound(other: Binding) -> None:
    """With the right key in hand: neither layer leans on the other."""
    dek, keyring = envelope.new_dek(), LocalKeyring(first_keys())
    text = envelope.encrypt(Secret("the text"), dek, BINDING)
    assert envelope.decrypt(text, dek, BINDING).reveal() == "the text"
    with pytest.raises(Tampered):
        envelope.decrypt(text, dek, other)
    kek_id, wrapped_key = await keyring.wrap(dek, BINDING)
    assert await keyring.unwrap(kek_id, wrapped_key, BINDING) == dek
    with pytest.raises(Tampered):
        await keyring.unwrap(kek_id, wrapped_key, other)


def test_no_two_bindings_have_the_same_associated_data() -> None:
    parts = ["", "a", "ab", "b", "1", "11"]
    bindings_made = [Binding(j, r, v).aad("dek", k) for j, r, v, k in itertools.product(parts, parts, (1, 11), parts)]
    assert len(set(bindings_made)) == len(bindings_made)
    assert Binding("a", "b", 1).aad("dek") != Binding("a", "b", 1).aad("content")


def test_one_ciphertext_for_two_keys_is_refused() -> None:
    """GCM itself accepts it under both, as the first half shows."""
    nonce, aad = secrets.token_bytes(12), BINDING.aad("content", envelope.HEAD.hex())
    deks = secrets.token_bytes(32), secrets.token_bytes(32)
    keys = envelope._key_and_commitment(deks[0])[0], envelope._key_and_commitment(deks[1])[0]
    crafted = two_keys.sealed_for_both(keys, nonce, aad)
    first, second = (AESGCM(key).decrypt(nonce, crafted, aad) for key in keys)
    assert first != second
    refusal = 0
    for committed_events in deks:
        text = envelope.to_text(envelope.HEAD + envelope._key_and_commitment(committed_events)[1] + nonce + crafted)
        for dek in deks:
            try:
                envelope.decrypt(text, dek, BINDING)
            except Tampered as error:
                refusal += "another key" in str(error)  # the one key that it is committed to opens it, to noise
            else:
                assert dek is committed_events
    assert refusal == 2


async def test_a_data_key_is_used_once() -> None:
    secret = Sealed()
    envelopes = [(await secret.kept()).envelope for _ in range(50)]
    for column in TEXTS:
        assert len({getattr(one, column) for one in envelopes}) == 50


async def test_a_retired_and_an_unknown_key_are_told_apart() -> None:
    secret = Sealed()
    credentials = await secret.kept()
    keys = secret.vault.keyring._keys  # type: ignore[attr-defined]
    two = keys.with_new_key(in_use=True)
    secret.vault.keyring = LocalKeyring(two)
    assert await secret.opens(credentials)
    assert (await secret.kept()).envelope.storage_creds_kek_id == "k2"
    secret.vault.keyring = LocalKeyring(Keys(two.keys, 2, least=2))  # the minimum alone refuses
    with pytest.raises(RetiredKek, match="minimum is k2"):
        await secret.vault._decrypted_secret(credentials)
    secret.vault.keyring = LocalKeyring(Keys({2: two.keys[2]}, 2))
    with pytest.raises(UnknownKek, match="no key k1"):
        await secret.vault._decrypted_secret(credentials)


async def test_credentials_open_for_the_claim_that_is_held_and_nobody_else(vault: Vault, secret: Secret) -> None:
    new = new_job(requester_id="acme")
    await vault.store.enqueue([new._replace(credentials=await vault.seal(secret, new.job_id, "acme"))])
    (queued_job,) = await vault.store.get([new.job_id])
    assert queued_job is not None
    with pytest.raises(StaleClaim):
        await vault.open(queued_job)
    (job,) = await vault.store.claim(ClaimRequest("w"))
    secrets_of_job = await vault.open(job)
    assert secrets_of_job.secret == secret
    assert secrets_of_job.credential_version == 1
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
        envelope = await vault.seal(secret, new.job_id, new.requester_id)
        await store.enqueue([new._replace(credentials=envelope)])
    rows = await store.credentials([mine.job_id, theirs.job_id])
    assert rows[0] is not None
    assert rows[1] is not None
    assert await store.replace_credentials([(rows[1], rows[1]._replace(envelope=rows[0].envelope))]) == [True]
    jobs = {job.job_id: job for job in await store.claim(ClaimRequest("w", limit=2))}
    assert (await vault.open(jobs[mine.job_id])).secret == secret
    with pytest.raises(Tampered):
        await vault.open(jobs[theirs.job_id])
    await store.close()
