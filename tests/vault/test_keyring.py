from __future__ import annotations

import base64
import logging
import os
import threading
from pathlib import Path

import pytest

from callsheet.engine import Engine
from callsheet.kernel.job import Credentials
from callsheet.vault import Binding, Secret, Vault, keyring_from
from callsheet.vault.errors import InvalidKeyring, NoKeyring, UnknownKek
from callsheet.vault.keys import Keys, changing, first_keys, read_file, read_keys, write_file
from callsheet.vault.local import FileKeyring, LocalKeyring
from callsheet.vault.vault import Wraps, totals

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER = base64.b64encode(bytes(32)).decode()
MINE = Binding("j", "acme", 1)


def test_a_keyring_is_lines_of_keys_and_the_newest_wraps() -> None:
    keys = read_keys(f"# mine, and mine alone\n\nk1 {OTHER}\nk3   {KEY}  # new\n")
    assert (keys.current, keys.least, sorted(keys.keys)) == (3, 1, [1, 3])
    assert read_keys(keys.text()) == keys
    assert read_keys(f"k1 {OTHER},current k1,k3 {KEY}") == Keys(keys.keys, 1)
    assert KEY not in repr(keys)
    assert "bytes" not in repr(keys)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        f"k1 {KEY}\nk1 {OTHER}",
        f"k0 {KEY}",
        f"one {KEY}",
        f"k1 {KEY[:-4]}",
        f"k1 {KEY} more",
        "k1 not*base64",
        f"k1 {KEY}\ncurrent k2",
        f"k1 {KEY}\nmin k2",
        f"k1 {KEY}\ncurrent k1\ncurrent k1",
        f"k1 {KEY}\nmin x",
        KEY,
    ],
)
def test_a_keyring_that_cannot_be_right_is_refused_without_telling_its_keys(text: str) -> None:
    with pytest.raises(InvalidKeyring) as excinfo:
        read_keys(text)
    assert KEY[:8] not in str(excinfo.value)
    assert "not*base64" not in str(excinfo.value)
    assert excinfo.value.__context__ is None or excinfo.value.__suppress_context__


def test_a_keyring_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_file(path, first_keys())
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["keys"]
    path.chmod(0o640)
    with pytest.raises(InvalidKeyring, match="chmod 600"):
        read_file(path)
    with pytest.raises(NoKeyring):
        read_file(tmp_path)


async def test_a_rotation_needs_no_restart(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_file(path, first_keys())
    keyring = FileKeyring(path)
    old = await keyring.wrap(bytes(32), MINE)
    write_file(path, read_file(path).with_new_key(in_use=True))
    new = await keyring.wrap(bytes(32), MINE)
    assert (old.kek_id, new.kek_id, await keyring.current()) == ("k1", "k2", "k2")
    assert await keyring.unwrap(*old, MINE) == await keyring.unwrap(*new, MINE) == bytes(32)
    path.unlink()  # a volume that is away for a moment
    assert await keyring.unwrap(*new, MINE) == bytes(32)


async def test_a_prepared_key_opens_before_it_wraps(tmp_path: Path) -> None:
    """Machines receive a new key one by one: no process meets an unknown key."""
    one = first_keys()
    two = one.with_new_key(in_use=False)
    assert (two.current, two.prepared, one.prepared) == (1, 2, None)
    ahead = LocalKeyring(Keys(two.keys, 2))
    wrapped_key = await ahead.wrap(bytes(32), MINE)
    assert await LocalKeyring(two).unwrap(*wrapped_key, MINE) == bytes(32)
    with pytest.raises(UnknownKek):
        await LocalKeyring(one).unwrap(*wrapped_key, MINE)


def test_rotations_at_the_same_time_lose_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_file(path, first_keys())

    def rotate() -> None:
        with changing(path) as keys:
            assert keys is not None
            write_file(path, keys.with_new_key(in_use=True))

    threads = [threading.Thread(target=rotate) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read_file(path).keys) == list(range(1, 14))


def test_the_environment_names_the_keyring(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_file(path, first_keys())
    assert isinstance(keyring_from({"CALLSHEET_KEYS_FILE": str(path), "CALLSHEET_KEYS": "rubbish"}), FileKeyring)
    assert type(keyring_from({"CALLSHEET_KEYS": f"k1 {KEY}"})) is LocalKeyring
    assert "CALLSHEET_KEYS" not in os.environ


async def test_wraps_are_counted_over_processes_and_never_too_few(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (Wraps(engine.store, batch=10, warn_at=35) for _ in range(2))
    for wraps in (first, second):
        for _ in range(12):
            await wraps.count("k1")
    assert await totals(engine.store) == {"k1": 40}  # 24 made, in reservations of ten
    await first.count("k2")
    assert (await totals(engine.store))["k2"] == 10
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "key k1 has wrapped 40 times" in warning.getMessage()


async def test_every_seal_and_every_rewrap_is_counted(vault: Vault) -> None:
    vault._wraps = Wraps(vault.store, batch=1)
    envelope = await vault.seal(Secret("x" * 10), "00000000-0000-0000-0000-000000000001", "")
    await vault.rewrap(Credentials("00000000-0000-0000-0000-000000000001", "", envelope))
    assert await totals(vault.store) == {"k1": 2}
