from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from callsheet.app.sealing import VaultSealer
from callsheet.engine import Engine
from callsheet.outbox import Endpoints
from callsheet.vault.keys import first_keys
from callsheet.vault.local import LocalKeyring
from tests import stores
from tests.outbox.kit import add_events, until
from tests.outbox.sink import RULES, Got, Sink, answer

ROOT = Path(__file__).parents[2]
DEEP = os.environ.get("CALLSHEET_DEEP") == "1"
KINDS = stores.THREE if DEEP else ("sqlite",)


def start(url: str, keys: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.outbox.deliverer", url, keys]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_deliverer_that_is_killed_loses_nothing_and_changes_nothing(kind: str) -> None:
    """Killed in the middle of attempts; the next deliverer repeats the events with equal ids and bodies."""
    held = asyncio.Event()

    async def stuck(sink: Sink, request: Got, writer: asyncio.StreamWriter) -> None:
        if not held.is_set():
            await asyncio.sleep(3600)
        await answer()(sink, request, writer)

    url, keys = stores.fresh_url(kind), first_keys().text()
    engine = Engine.from_url(url)
    await engine.store.migrate()
    async with engine, Sink(answer(), answer(), answer(), stuck) as sink:
        endpoint_registry = Endpoints(engine.store, VaultSealer(LocalKeyring.from_text(keys)), RULES)
        await endpoint_registry.new_own_secret("acme")
        ids = await add_events(engine, *[sink.url] * 25)
        first = start(url, keys)
        await sink.until(4, 60)
        first.send_signal(signal.SIGKILL)
        first.wait()
        held.set()
        second = start(url, keys)
        try:
            rows = await until(engine, ids, "delivered", 90)
        finally:
            second.kill()
            second.wait()
        for process in (first, second):
            assert process.stdout is not None
            process.stdout.close()
    bodies_of: dict[str, set[bytes]] = defaultdict(set)
    for request in sink.got:
        bodies_of[request.event_id].add(request.body)
    assert set(bodies_of) == set(ids)
    assert all(len(bodies) == 1 for bodies in bodies_of.values())
    assert len(sink.got) > len(ids)
    assert {row.body.encode() for row in rows} == {body for bodies in bodies_of.values() for body in bodies}
