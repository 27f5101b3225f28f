from __future__ import annotations

import json
from pathlib import Path

import pytest

from callsheet.cli.doctor.connections import file_system_of
from callsheet.engine import Engine
from callsheet.engine.clock import ClockWatch
from callsheet.store.protocol import Document
from tests import stores
from tests.cli.conftest import Shop
from tests.servers import RedisServer


@pytest.mark.parametrize("url", ["sqlite", "postgres", "redis"], indirect=True)
def test_a_good_store_is_found_good(shop: Shop) -> None:
    shop.add()
    result = shop.cli("doctor")
    assert result.exit_code == 0, result.stdout
    for words in (
        "✓ store:",
        "✓ Python: 3.",
        "✓ round trip:",
        "✓ clock:",
        "✓ clock steps: none within a day",
        "✓ queue default: 1 queued",
        "dead letters: none",
    ):
        assert words in result.stdout
    assert "✗" not in result.stdout


def test_dead_letters_and_paused_queues_are_pointed_out(shop: Shop) -> None:
    shop.dead()
    shop.cli("jobs", "pause", "media")
    output = shop.cli("doctor").stdout
    assert "! dead letters: 1 → callsheet jobs dead" in output
    assert "! queue media: paused; empty → callsheet jobs resume media" in output


def test_a_clock_that_stepped_is_pointed_out(shop: Shop) -> None:
    async def step_back(engine: Engine) -> None:
        ahead = await engine.store.now() + 6 * 3_600_000
        body = {"at": ahead, "steady": [0, 0], "boot": "another machine", "ahead": [], "steps": []}
        await engine.store.put_document(Document("clock", "store", json.dumps(body), 0))
        await ClockWatch(engine.store).look()

    shop.ask(step_back)
    output = shop.cli("doctor").stdout
    assert "! clock steps: once within a day, back by " in output
    assert "→ see why it was wrong" in output


@pytest.mark.parametrize(
    "url", ["postgresql://u:s3cret@127.0.0.1:1/db", "redis://:s3cret@127.0.0.1:1/0", "nothing://u:s3cret@h/"]
)
def test_a_store_that_cannot_be_reached_is_told_without_traceback_or_password(url: str) -> None:
    result = Shop(Path(), "", url).cli("doctor", "--database-url", url)
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("✗")]
    assert line.startswith("✗ store: ")
    assert "s3cret" not in result.output
    assert "Traceback" not in result.output


def test_a_schema_that_is_missing_names_the_command(shop: Shop) -> None:
    result = shop.cli("doctor", "--database-url", stores.fresh_url("postgres"))
    assert result.exit_code == 1
    assert "→ run: callsheet migrate" in result.stdout


def test_a_file_that_does_not_exist_is_not_made(shop: Shop) -> None:
    result = shop.cli("doctor", "--database-url", "sqlite:///missing.db")
    assert result.exit_code == 0
    assert "! store: sqlite:///missing.db does not exist yet" in result.stdout
    assert not Path("missing.db").exists()
    assert shop.cli("doctor", "--database-url", "sqlite:////missing/folder/jobs.db").exit_code == 1


def test_weak_durability_is_a_warning(shop: Shop) -> None:
    output = shop.cli("doctor", "--database-url", f"{shop.url}?synchronous=normal").stdout
    assert "! durability: SQLite, WAL, synchronous=NORMAL → a power cut may lose the last jobs" in output


def test_what_a_store_says_in_the_log_is_a_warning_too() -> None:
    with RedisServer.start(settings={"appendonly": "no", "maxmemory-policy": "allkeys-lru"}) as server:
        url = server.fresh_url()
        output = Shop(Path(), "", url).cli("doctor", "--database-url", url).stdout
    assert "! durability: Redis, memory only (appendonly=no) → the end of the server loses all jobs" in output
    assert "! server: Redis may evict jobs when memory is full" in output


def test_findings_can_be_had_as_json(shop: Shop) -> None:
    result = json.loads(shop.cli("doctor", "--json").stdout)
    assert result[0]["name"] == "store"
    assert {"mark", "name", "text", "advice"} == result[0].keys()
    assert {finding["mark"] for finding in result} <= {"good", "warning", "bad"}


def test_the_longest_mount_point_says_which_file_system_a_path_is_on(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\nhost:/x /srv/share nfs4 rw 0 0\n/dev/sdb /srv/share/local\\040disk xfs rw 0 0\n"
    )
    assert file_system_of(Path("/srv/share/jobs.db"), mounts) == "nfs4"
    assert file_system_of(Path("/srv/share/local disk/jobs.db"), mounts) == "xfs"
    assert file_system_of(Path("/srv/shared.db"), mounts) == "ext4"
    assert file_system_of(Path("/x"), tmp_path / "none") == ""
