"""`callsheet vault`, from the first key to the retirement of an old one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from callsheet.cli import cli
from callsheet.vault import Vault, keyring_from
from callsheet.vault.keys import read_file
from tests import stores
from tests.vault.test_rewrap import all_open, filled


class Place:
    """A store and a keyring's file, by the environment."""

    def __init__(self, url: str, path: Path) -> None:
        self.url = url
        self.path = path

    def cli(self, *words: str) -> Result:
        return CliRunner().invoke(cli, ["vault", *words], catch_exceptions=False)

    def fill(self, rows: int) -> dict[str, str]:
        return asyncio.run(self._with_vault(rows))

    def check(self, texts: dict[str, str]) -> None:
        asyncio.run(self._with_vault(0, texts))

    async def _with_vault(self, rows: int, texts: dict[str, str] | None = None) -> dict[str, str]:
        store = await stores.open_store(self.url)
        async with Vault(store, keyring_from({"CALLSHEET_KEYS_FILE": str(self.path)})) as vault:
            if texts is not None:
                await all_open(vault, texts)
            result = await filled(vault, rows)
        await store.close()
        return result


@pytest.fixture
def place(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in ("CALLSHEET_KMS", "CALLSHEET_KEYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CALLSHEET_DATABASE_URL", url)
    monkeypatch.setenv("CALLSHEET_KEYS_FILE", str(tmp_path / "keys"))
    place = Place(url, tmp_path / "keys")
    place.cli("rotate")
    place.fill(0)
    return place


def test_the_life_of_a_key(place: Place) -> None:
    texts = place.fill(30)
    assert "key k2 is ready" in place.cli("rotate", "--prepare").stdout
    assert place.cli("rotate", "--prepare").exit_code == 1
    texts |= place.fill(10)
    assert json.loads(place.cli("status", "--json").stdout)["to_rewrap"] == 0
    assert "key k2 wraps" in place.cli("rotate").stdout
    refusal = place.cli("retire")
    assert refusal.exit_code == 1
    assert "40 credentials and secrets are under k1" in refusal.stderr
    status = json.loads(place.cli("status", "--json").stdout)
    assert (status["current"], status["to_rewrap"]) == ("k2", 40)
    assert "40 credentials wrapped anew under k2" in place.cli("rewrap").stdout
    assert "0 credentials wrapped anew" in place.cli("rewrap").stdout
    assert "retired: k1" in place.cli("retire").stdout
    assert sorted(read_file(place.path).keys) == [2]
    assert read_file(place.path).least == 2
    place.check(texts)
    output = place.cli("status").stdout
    assert "wraps now" in output
    assert "k2" in output


def test_credentials_that_cannot_be_opened_are_told_of(place: Place) -> None:
    texts = place.fill(3)
    lost = place.path.read_bytes()
    place.path.unlink()
    place.cli("rotate")
    place.cli("rotate")  # k2 of another keyring: k1 of the lost one is not k1 of this
    result = place.cli("rewrap")
    assert result.exit_code == 1
    assert "3 credentials cannot be opened" in result.stderr
    assert all(job_id in result.stderr for job_id in texts)
    place.path.write_bytes(lost)
    place.check(texts)


@pytest.mark.parametrize("words", [("rotate",), ("rewrap",), ("status",), ("retire",)])
def test_without_a_keyring_a_command_says_what_to_do(
    words: tuple[str, ...], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALLSHEET_KEYS_FILE")
    result = place.cli(*words)
    assert result.exit_code == 2
    assert "CALLSHEET_KEYS_FILE" in result.stderr
    assert result.stderr.count("\n") == 1


def test_keys_in_a_service_are_rotated_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_KMS", "aws:alias/x")
    result = place.cli("rotate")
    assert result.exit_code == 2
    assert "rotate and retire them there" in result.stderr


def test_a_missing_folder_is_named(place: Place) -> None:
    result = place.cli("rotate", "--keys-file", "/no/such/folder/keys")
    assert result.exit_code == 2
    assert "/no/such/folder" in result.stderr
