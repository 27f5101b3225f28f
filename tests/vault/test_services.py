"""The adapters of key services, against stand-ins (see services.py)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from callsheet.kernel.errors import Outage
from callsheet.net.sigv4 import Scope, signing_key
from callsheet.vault import Binding, Keyring, Secret, Vault, keyring_from
from callsheet.vault.errors import (
    InvalidKeyring,
    KeyServiceRefused,
    KeyServiceUnavailable,
    NoKeyring,
    RetiredKek,
    Tampered,
    UnknownKek,
)
from callsheet.vault.kms import Signer
from callsheet.vault.rewrap import rewrap
from tests.stores import open_store
from tests.vault.services import Kms, Transit
from tests.vault.test_rewrap import all_open, filled

MINE = Binding("00000000-0000-0000-0000-000000000001", "acme", 1)


@pytest.fixture(params=[Kms, Transit])
def service(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param().running() as service:
        yield service


def rotate(service: Kms | Transit) -> None:
    service.new_key() if isinstance(service, Kms) else service.rotate()


def retire(service: Kms | Transit) -> None:
    """Remove every key but the newest."""
    if isinstance(service, Kms):
        service.disabled = set(service.keys) - {service.aliased}
    else:
        service.min_decryption_version = len(service.versions)


def keyring_of(service: Any) -> Keyring:
    keyring = keyring_from(service.environ())
    keyring._service._pause_s = 0.001  # type: ignore[attr-defined]
    return keyring


async def test_a_service_wraps_and_unwraps_and_never_sees_the_content(service: Any, secret: Secret) -> None:
    store = await open_store("sqlite::memory:")
    async with Vault(store, keyring_of(service)) as vault:
        envelope = await vault.seal(secret, *MINE)
        assert envelope.storage_creds_kek_id == await vault.keyring.current()
        texts = await filled(vault, 3)
        await all_open(vault, texts)
    words = list(secret.parts())
    assert service.seen
    assert not any(word.encode() in body for *_, body in service.seen for word in words)
    await store.close()


async def test_a_wrapped_key_opens_only_with_its_own_binding_and_unchanged(service: Any) -> None:
    keyring = keyring_of(service)
    dek = secrets.token_bytes(32)
    kek_id, wrapped_key = await keyring.wrap(dek, MINE)
    assert await keyring.unwrap(kek_id, wrapped_key, MINE) == dek
    for other in (MINE._replace(job_id="x"), MINE._replace(requester_id="evil"), MINE._replace(credential_version=2)):
        with pytest.raises(Tampered):
            await keyring.unwrap(kek_id, wrapped_key, other)
    for i in range(0, len(wrapped_key), 7):
        with pytest.raises((Tampered, UnknownKek)):
            await keyring.unwrap(kek_id, wrapped_key[:i] + bytes([wrapped_key[i] ^ 1]) + wrapped_key[i + 1 :], MINE)
    rotate(service)
    newer = await keyring.wrap(dek, MINE)
    assert newer.kek_id != kek_id
    with pytest.raises(Tampered):
        await keyring.unwrap(newer.kek_id, wrapped_key, MINE)
    with pytest.raises((Tampered, UnknownKek)):
        await keyring.unwrap("nobody", wrapped_key, MINE)
    await keyring.close()
    await keyring.close()


async def test_rotation_in_the_service_then_rewrap_then_retire(service: Any) -> None:
    store = await open_store("sqlite::memory:")
    async with Vault(store, keyring_of(service)) as vault:
        texts = await filled(vault, 20)
        (old,) = await store.credential_keks()
        rotate(service)
        (first, *_) = await store.credentials_under(old)
        await all_open(vault, texts)
        vault.keyring = keyring_of(service)  # the current key is asked for once a minute
        progress, broken_job = await rewrap(vault, batch=7)
        assert (progress.wrapped, broken_job) == (20, {})
        assert set(await store.credential_keks()) == {await vault.keyring.current()}
        retire(service)
        await all_open(vault, texts)
        with pytest.raises(RetiredKek):
            await vault._decrypted_secret(first)
    await store.close()


async def test_a_busy_service_is_asked_again_and_one_that_is_away_is_said_to_be(service: Any) -> None:
    keyring = keyring_of(service)
    service.busy = 2
    wrapped_key = await keyring.wrap(bytes(32), MINE)
    service.busy = 3
    with pytest.raises(KeyServiceUnavailable, match="status 503"):
        await keyring.unwrap(*wrapped_key, MINE)
    assert await keyring.unwrap(*wrapped_key, MINE) == bytes(32)
    environ = service.environ() | {"VAULT_ADDR": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_KMS": "http://127.0.0.1:1"}
    away: Any = keyring_from(environ)
    away._service._pause_s = 0.001
    with pytest.raises(KeyServiceUnavailable, match="ConnectError"):
        await away.wrap(bytes(32), MINE)


@pytest.mark.parametrize(
    ("service", "name"),
    [(Kms, "AWS_SECRET_ACCESS_KEY"), (Kms, "AWS_SESSION_TOKEN"), (Kms, "AWS_REGION"), (Transit, "VAULT_TOKEN")],
    indirect=["service"],
)
async def test_a_wrong_signature_or_token_is_refused(service: Any, name: str) -> None:
    wrong = "wrong-but-plausible"
    keyring = keyring_from(service.environ() | {name: wrong})
    with pytest.raises(KeyServiceRefused) as excinfo:
        await keyring.wrap(bytes(32), MINE)
    assert wrong not in str(excinfo.value)
    assert isinstance(excinfo.value, Outage), "a token that ended is no fault of the jobs that need a key"


async def test_a_vault_that_ignores_associated_data_is_not_used() -> None:
    with Transit(binds=False).running() as service, pytest.raises(InvalidKeyring, match=r"1\.13"):
        await keyring_of(service).wrap(bytes(32), MINE)


async def test_an_unknown_key_is_told() -> None:
    with Kms().running() as kms:
        keyring = keyring_from({**kms.environ(), "CALLSHEET_KMS": "aws:alias/nobody"})  # type: ignore[attr-defined]
        with pytest.raises(UnknownKek):
            await keyring.current()
    with Transit().running() as transit:
        keyring = keyring_from({**transit.environ(), "CALLSHEET_KMS": "vault:transit/nobody"})  # type: ignore[attr-defined]
        with pytest.raises(UnknownKek):
            await keyring.current()


def test_a_signature_is_that_of_the_published_example() -> None:
    """The key of AWS' own example of how a signing key is derived."""
    secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    key = signing_key(secret, Scope("us-east-1", "iam"), "20150830T123600Z")
    assert key.hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"
    assert "wJalr" not in repr(Signer("AKIDEXAMPLE", Secret(secret), "us-east-1", "iam"))


@pytest.mark.parametrize(
    ("environ", "error", "words"),
    [
        ({}, NoKeyring, "CALLSHEET_KEYS_FILE"),
        ({"CALLSHEET_KMS": "gcp:x"}, InvalidKeyring, "aws:KEY"),
        ({"CALLSHEET_KMS": "aws:alias/x"}, InvalidKeyring, "AWS_REGION"),
        ({"CALLSHEET_KMS": "vault:transit/x"}, InvalidKeyring, "VAULT_ADDR"),
        ({"CALLSHEET_KEYS_FILE": "/nowhere/keys"}, NoKeyring, "vault rotate"),
        ({"CALLSHEET_KEYS": "k1 tooshort"}, InvalidKeyring, "line 1"),
    ],
)
def test_a_wrong_environment_says_what_to_do(environ: dict[str, str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        keyring_from(environ)
