"""Secrets of webhook endpoints are under the same keys as credentials, and come along when those change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from callsheet.app import rewrapping
from callsheet.app.rewrapping import rewrap_webhooks, webhook_keks
from callsheet.app.sealing import VaultSealer
from callsheet.cli import cli
from callsheet.outbox import Endpoints
from callsheet.outbox.endpoints import Endpoint, save
from callsheet.store.protocol import Store
from callsheet.vault.keys import Keys, first_keys, read_file
from callsheet.vault.local import FileKeyring, LocalKeyring
from tests import stores

Secrets = dict[str, tuple[str, ...]]


async def made(store: Store, keyring: LocalKeyring) -> Secrets:
    """Create an endpoint with two secrets, one with one, and a requester's own secret; return all by endpoint id."""
    endpoints = Endpoints(store, VaultSealer(keyring))
    one, _ = await endpoints.create("acme", "https://a.example.org/")
    await endpoints.rotate(one.endpoint_id, "acme")
    await endpoints.create("other", "https://b.example.org/")
    await endpoints.new_own_secret("acme")
    return await opened(store, keyring)


async def opened(store: Store, keyring: LocalKeyring) -> Secrets:
    endpoints, now = Endpoints(store, VaultSealer(keyring)), await store.now()
    results = [*await endpoints.list(None), await endpoints.own("acme")]
    return {endpoint.endpoint_id: await endpoints.open(endpoint, now) for endpoint in results}


def two_keys() -> tuple[Keys, LocalKeyring, LocalKeyring]:
    keys = first_keys()
    both = keys.with_new_key(in_use=True)
    return both, LocalKeyring(keys), LocalKeyring(both)


async def test_all_secrets_come_under_the_new_key_and_are_the_same(url: str) -> None:
    store = await stores.open_store(url)
    keys, before, after = two_keys()
    secrets = await made(store, before)
    assert await webhook_keks(store) == {"k1": 4}
    progress, faults = await rewrap_webhooks(store, after)
    assert (progress.wrapped, faults, await webhook_keks(store)) == (4, {}, {"k2": 4})
    assert await opened(store, LocalKeyring(keys.without_below(2))) == secrets
    again, _ = await rewrap_webhooks(store, after)
    assert again.wrapped == 0
    await store.close()


async def test_a_secret_that_was_rotated_meanwhile_is_kept(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await stores.open_store(url)
    _, before, after = two_keys()
    await made(store, before)
    new: list[str] = []

    async def rotate_first(store: Store, endpoint: Endpoint) -> Endpoint:
        if not new and endpoint.url:
            new.append("")
            _, new[0] = await Endpoints(store, VaultSealer(after)).rotate(endpoint.endpoint_id, None)
        return await save(store, endpoint)

    monkeypatch.setattr(rewrapping, "save", rotate_first)
    progress, faults = await rewrap_webhooks(store, after)
    assert (faults, progress.broken, set(await webhook_keks(store))) == ({}, 0, {"k2"})
    assert any(new[0] in texts for texts in (await opened(store, after)).values())
    await store.close()


async def test_a_secret_that_cannot_be_opened_is_told_of_and_stays(url: str) -> None:
    store = await stores.open_store(url)
    _, before, _ = two_keys()
    secrets = await made(store, before)
    stranger = LocalKeyring(first_keys().with_new_key(in_use=True))
    progress, faults = await rewrap_webhooks(store, stranger)
    assert (progress.wrapped, set(faults)) == (0, set(secrets))
    assert await opened(store, before) == secrets
    await store.close()


@pytest.fixture
def run(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    for name in ("CALLSHEET_KMS", "CALLSHEET_KEYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CALLSHEET_DATABASE_URL", url)
    monkeypatch.setenv("CALLSHEET_KEYS_FILE", str(tmp_path / "keys"))
    return lambda *words: CliRunner().invoke(cli, list(words), catch_exceptions=False)


def in_store(url: str, work: Callable[[Store], Awaitable[Secrets]]) -> Secrets:
    async def whole() -> Secrets:
        store = await stores.open_store(url)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(whole())


def test_the_commands_count_them_bring_them_along_and_do_not_retire_their_key(
    url: str, tmp_path: Path, run: Callable[..., Result]
) -> None:
    run("vault", "rotate")
    keyring = FileKeyring(tmp_path / "keys")
    secrets = in_store(url, lambda store: made(store, keyring))
    run("vault", "rotate")
    refusal = run("vault", "retire")
    assert refusal.exit_code == 1
    assert "4 credentials and secrets are under k1" in refusal.stderr
    assert sorted(read_file(tmp_path / "keys").keys) == [1, 2]
    status = json.loads(run("vault", "status", "--json").stdout)
    assert (status["to_rewrap"], [kek["webhook_secrets"] for kek in status["keks"]]) == (4, [4, 0])
    assert "! keys: 4 sealed under older keys → callsheet vault rewrap" in run("doctor").stdout
    assert "4 webhook secrets wrapped anew under k2" in run("vault", "rewrap").stdout
    assert "retired: k1" in run("vault", "retire").stdout
    assert in_store(url, lambda store: opened(store, FileKeyring(tmp_path / "keys"))) == secrets


def test_the_doctor_looks_at_the_keyring(
    url: str, tmp_path: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys"
    missing = run("doctor")
    assert missing.exit_code == 1
    assert f"✗ keys: there is no keyring {path}" in missing.stdout
    run("vault", "rotate")
    in_store(url, lambda store: made(store, FileKeyring(path)))
    assert f"✓ keys: {path}: k1 wraps and opens" in run("doctor").stdout
    path.chmod(0o640)
    assert "✗ keys: others can read the keyring" in run("doctor").stdout
    path.chmod(0o600)
    tmp_path.chmod(0o777)
    assert "! keys: others can write in" in run("doctor").stdout
    tmp_path.chmod(0o700)
    path.write_text("k1 tooshort\n")
    assert "✗ keys: line 1 of the keyring" in run("doctor").stdout
    path.unlink()
    run("vault", "rotate")
    run("vault", "rotate")
    run("vault", "retire")  # refused: its k1 is another than the one in use, and has the same name
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith("k1 ")))
    lost = run("doctor")
    assert "✗ keys: 4 credentials and secrets are under k1, which is not here" in lost.stdout
    monkeypatch.delenv("CALLSHEET_KEYS_FILE")
    without = run("doctor")
    assert "✗ keys: 4 credentials and secrets are under k1, which is not here" in without.stdout
    assert without.exit_code == 1


def test_the_doctor_does_not_miss_keys_that_nothing_needs(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALLSHEET_KEYS_FILE")
    assert " keys: " not in run("doctor").stdout
