"""The secrets of the system stand in the store sealed where there is a keyring, and come along when its key changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from callsheet import Callsheet
from callsheet.app.rewrapping import keks_in_use, rewrap_system, system_keks
from callsheet.app.sealing import VaultSealer
from callsheet.cli import cli
from callsheet.cli.open_store import open_engine
from callsheet.contracts.control_plane.leases import Tokens
from callsheet.engine.system_secrets import PLACES, Place, SecretSealed, sealed_text, system_secret
from callsheet.kernel.errors import CallsheetError
from callsheet.objects import open_objects
from callsheet.store.protocol import Store
from callsheet.vault.keys import first_keys, write_file
from callsheet.vault.local import LocalKeyring
from tests import stores

places = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.kind)


@pytest.fixture(params=stores.THREE)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    store = await stores.open_store(stores.fresh_url(request.param))
    yield store
    await store.close()


def sealer() -> VaultSealer:
    return VaultSealer(LocalKeyring(first_keys()))


async def bodies(store: Store) -> str:
    return " ".join([documents.body for place in PLACES for documents in await store.documents(place.kind, place.name)])


@places
async def test_a_new_secret_is_sealed_and_the_same_for_all(store: Store, place: Place) -> None:
    seals = sealer()
    results = set(await asyncio.gather(*(system_secret(store, place, seals) for _ in range(4))))
    (secret,) = results
    assert len(secret) == 32
    assert secret.hex() not in await bodies(store)
    assert await system_keks(store) == {"k1": 1}


@places
async def test_a_secret_in_the_clear_is_sealed_when_a_keyring_comes(store: Store, place: Place) -> None:
    secret = await system_secret(store, place)
    assert secret.hex() in await bodies(store)
    seals = sealer()
    assert set(await asyncio.gather(*(system_secret(store, place, seals) for _ in range(4)))) == {secret}
    assert secret.hex() not in await bodies(store)
    assert await system_secret(store, place, seals) == secret
    with pytest.raises(SecretSealed, match="CALLSHEET_KEYS_FILE"):
        await system_secret(store, place)


async def test_secrets_of_older_programs_are_read(store: Store) -> None:
    for place in PLACES:
        await system_secret(store, place)
        (document,) = await store.documents(place.kind, place.name)
        body = json.loads(document.body)
        assert isinstance(body, str if place.is_bare else dict)


async def test_they_come_under_the_new_key_and_are_the_same(store: Store) -> None:
    keys = first_keys()
    both = keys.with_new_key(in_use=True)
    before, after = LocalKeyring(keys), LocalKeyring(both)
    secrets = [await system_secret(store, place, VaultSealer(before)) for place in PLACES[:-1]]
    secrets.append(await system_secret(store, PLACES[-1]))  # one in the clear
    assert await rewrap_system(store, after) == (3, {})
    assert await keks_in_use(store) == {"k2": 3}
    assert await rewrap_system(store, after) == (0, {})
    only = VaultSealer(LocalKeyring(both.without_below(2)))
    assert [await system_secret(store, place, only) for place in PLACES] == secrets


async def test_a_sealed_secret_does_not_open_in_another_place(store: Store) -> None:
    seals, (one, other, *_) = sealer(), PLACES
    await system_secret(store, one, seals)
    (document,) = await store.documents(one.kind, one.name)
    await store.put_document(document._replace(kind=other.kind, id=other.name, version=0))
    with pytest.raises(CallsheetError):
        await system_secret(store, other, seals)


async def test_a_process_without_the_keyring_has_the_objects_and_signs_nothing(store: Store, tmp_path: Path) -> None:
    url, seals = f"file://{tmp_path}/objects", sealer()
    async with await open_objects(url, store, sealer=lambda: seals) as signing, await open_objects(url, store) as plain:
        await plain.put("a", b"x")
        assert "/objects/a?" in (await signing.sign_get("a", 60)).url
        with pytest.raises(CallsheetError, match="keyring"):
            await plain.sign_get("a", 60)


def test_what_the_commands_open_seals_by_the_keyring_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(tmp_path / "keys", first_keys())
    monkeypatch.setenv("CALLSHEET_KEYS_FILE", str(tmp_path / "keys"))
    url = stores.fresh_url("sqlite")

    async def use() -> None:
        async with open_engine(url, create=True) as engine:
            await (await open_objects(f"file://{tmp_path}/objects", engine.store, sealer=engine.sealer)).close()
        app = Callsheet(url)
        engine = await app.engine()
        await Tokens(engine.store, engine.sealer).repeatable("w", "r")
        for place in PLACES[:2]:
            (document,) = await engine.store.documents(place.kind, place.name)
            assert sealed_text(document) is not None
        await app.close()

    asyncio.run(use())

    def said(*words: str) -> Result:
        return CliRunner().invoke(cli, ["vault", *words])

    (kek,) = json.loads(said("status", "--json", "--database-url", url).output)["keks"]
    assert kek["system_secrets"] == 2
    assert said("rotate").exit_code == 0
    assert said("retire", "--database-url", url).exit_code == 1
    assert "2 secrets of the system" in said("rewrap", "--database-url", url).output
    assert said("retire", "--database-url", url).exit_code == 0
