from __future__ import annotations

import asyncio
import os
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from pathlib import Path

import pytest

from callsheet.client import Client, NoSuchJob, SyncClient
from callsheet.kernel.errors import InvalidInput, JobFailed, ResultTimeout
from tests.client.conftest import QUICK, ServerState
from tests.http.live import ADMIN

ROOT = Path(__file__).parents[2]
NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def plain(idle: ServerState) -> Iterator[SyncClient]:
    with SyncClient(idle.url, ADMIN, patience=QUICK) as client:
        yield client


async def test_the_same_methods_without_async(site: ServerState, plain: SyncClient) -> None:
    def work() -> None:
        job = plain.create("chat", {"prompt": "count 3"}, ttl_s=60)
        events = list(plain.events(job.job_id))
        assert [event.type for event in events][-2:] == ["progress", "done"]
        assert list(plain.events(job.job_id, events[-2].id)) == events[-1:]
        assert plain.wait(job.job_id, timeout="60s")["text"] == "0 1 2 "
        assert plain.get(job.job_id) == plain.ended(job.job_id) == next(plain.list())
        assert {event.job_id for event in plain.events_of(job.job_id)} == {job.job_id}
        assert list(plain.stream_text("count 2", model="m")) == ["0 ", "1 "]
        waiting = plain.create("chat", {"prompt": "gate"})
        with pytest.raises(ResultTimeout):
            plain.wait(waiting.job_id, timeout=0.01)
        assert plain.cancel(waiting.job_id).job_id == waiting.job_id
        with pytest.raises(NoSuchJob):
            plain.get(NOBODY)
        with pytest.raises(JobFailed, match="broken"):
            list(plain.stream_text("fail"))

    await asyncio.to_thread(work)


async def test_threads_share_one_client_and_one_loop(site: ServerState, plain: SyncClient) -> None:
    loops: set[int | None] = set()

    def work(number: int) -> list[str]:
        job = plain.create("chat", {"prompt": f"count {number}"})
        ids = [event.id for event in plain.events(job.job_id)]
        loops.update(thread.ident for thread in threading.enumerate() if thread.name == "callsheet-client")
        return [job.job_id, *ids]

    for job_id, *ids in await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(1, 9))):
        assert ids == await site.event_ids(job_id)
    assert len(loops) == 1


async def test_it_does_everything_that_the_client_does() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(SyncClient) == public(Client)


async def test_it_refuses_to_block_an_event_loop(plain: SyncClient) -> None:
    with pytest.raises(InvalidInput, match="use Client and await it"):
        plain.get(NOBODY)


async def test_leaving_a_loop_and_closing_end_the_connections(idle: ServerState, client: Client) -> None:
    job_id = (await client.create("embed", {"input": "waits"})).job_id
    plain = SyncClient(idle.url, ADMIN, patience=QUICK)

    def first_only() -> None:
        for event in plain.events(job_id):
            assert event.type == "queued"
            break

    await asyncio.to_thread(first_only)
    await _until_no_stream_is_open(idle)
    left_over = plain.events(job_id)
    assert (await asyncio.to_thread(next, left_over)).type == "queued"
    plain.close()
    plain.close()
    await _until_no_stream_is_open(idle)
    with pytest.raises(InvalidInput, match="closed"):
        await asyncio.to_thread(plain.get, job_id)


async def _until_no_stream_is_open(site: ServerState) -> None:
    async with asyncio.timeout(60):
        while site.live.state.open:
            await asyncio.sleep(0.005)


def test_the_key_is_not_shown() -> None:
    with SyncClient("http://127.0.0.1:9", "cs_live_secret") as client:
        assert repr(client) == "<SyncClient http://127.0.0.1:9>"
        assert "secret" not in repr(client._current.client)


SCRIPT = """
import os, signal, sys
from callsheet.client import SyncClient
client = SyncClient()
job = client.create("embed", {"input": "waits"})
"""
FORKS = """
if (child := os.fork()) == 0:
    print("child", client.get(job.job_id).status, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("parent", client.get(job.job_id).status)
"""
INTERRUPTED = """
events = client.events(job.job_id)
print(next(events).type)
signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C, while it waits
try:
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    next(events)
except KeyboardInterrupt:
    print("interrupted", client.get(job.job_id).status)
"""
LEFT_OVER = """
events = client.events(job.job_id)
print(next(events).type)
"""


async def start(site: ServerState, script: str) -> Process:
    environ = {"CALLSHEET_URL": site.url, "CALLSHEET_API_KEY": ADMIN, "PYTHONPATH": str(ROOT / "src")}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT + script, env={**os.environ, **environ}, stdout=PIPE, stderr=PIPE
    )


async def said(process: Process) -> str:
    async with asyncio.timeout(60):
        out, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    return out.decode()


async def test_a_forked_process_opens_its_own(idle: ServerState) -> None:
    assert await said(await start(idle, FORKS)) == "child queued\nparent queued\n"


async def test_ctrl_c_leaves_a_client_that_works(idle: ServerState) -> None:
    assert await said(await start(idle, INTERRUPTED)) == "queued\ninterrupted queued\n"
    await _until_no_stream_is_open(idle)


async def test_an_iterator_that_is_left_over_does_not_hold_up_the_end(idle: ServerState) -> None:
    assert await said(await start(idle, LEFT_OVER)) == "queued\n"
