"""Coming back to a stream: whatever id a client brings, and wherever it was cut off, it misses and doubles nothing."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable

import httpx2
import pytest

from callsheet.http import sse
from callsheet.kernel.job import Job
from callsheet.kernel.wire import event_id
from tests.http.live import Frame, Live, frames
from tests.http.raw import head
from tests.time_limits import DEEP

RECONNECTS = 200
FUZZED = 10_000 if DEEP else 2_000
C1 = dict.fromkeys(range(128, 160), "x")


async def some(live: Live, job_id: str, last: str, most: int) -> list[Frame]:
    """Read some frames, then drop the connection."""
    got: list[Frame] = []
    headers = {"Last-Event-ID": last} if last else {}
    async with live.client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
        if answer.status_code == 204:
            return got
        async for frame in frames(answer):
            got.append(frame)
            if len(got) > most:
                break
    return got


async def test_a_reader_that_reconnects_all_the_time_gets_each_event_once(live: Live) -> None:
    job = await live.running()
    chance, stop = random.Random(7), asyncio.Event()

    async def publish() -> None:
        while not stop.is_set():
            await live.note(job, "1")
        await live.done(job)

    publisher = asyncio.create_task(publish())
    ids_read: list[str] = []
    last, came = "", 0
    while fresh := await some(live, job.job_id, last, 10**9 if stop.is_set() else chance.randint(0, 6)):
        came += 1
        assert fresh[0].event == "hello"
        ids_read += [frame.id for frame in fresh[1:]]
        last = ids_read[-1] if ids_read else ""
        if came == RECONNECTS:
            stop.set()
            await publisher
    committed_events = await live.engine.store.events({job.job_id: 0}, 1_000_000)
    assert ids_read == [event_id(event.ms, event.seq) for event in committed_events]
    assert came > RECONNECTS


def fuzzed(job: Job, other: Job, chance: random.Random) -> str:
    """A value that a Last-Event-ID header can hold."""
    near = [job.event_seq + n for n in (-1, 0, 1, 2, 10**6)]
    ms = [job.event_ms + n for n in (-1, 0, 1, 10**6)]
    shapes: list[Callable[[], str]] = [
        lambda: event_id(chance.choice(ms), chance.choice(near)),
        lambda: event_id(other.event_ms, other.event_seq),
        lambda: f"{chance.choice(ms)}-{chance.choice(near)}" + chance.choice(["-1", "x", ".", "-"]),
        lambda: str(chance.choice([0, 1, -1, 2**31, 2**63, 2**64, 10**40])),
        lambda: f"{10 ** chance.randint(0, 60)}-{10 ** chance.randint(0, 60)}",
        lambda: "".join(chr(chance.choice([*range(33, 127), *range(160, 256)])) for _ in range(chance.randint(1, 60))),
        lambda: "\U0001f600\u0661-\u0661".encode().decode("latin-1").translate(C1),
        lambda: "m." + ".".join(str(chance.randint(0, 9)) for _ in range(chance.randint(0, 5))),
        lambda: chance.choice(["-", "--", "0", "0-0", "00-01", "+1-1", "1-+1", "1_0-1", " ", "null", "{}", "*"]),
        lambda: chance.choice("x9-.") * chance.choice([100, 8_191, 10_240]),
    ]
    return chance.choice(shapes)()


async def test_no_last_event_id_is_answered_with_silence_or_an_error(
    small: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "ROTATE_S", (0.0, 0.0))  # each stream ends after its first frame
    async with await small.key("a") as a, await small.key("b") as b:
        job = await small.engine.get(await small.job(a))
        other = await small.engine.get(await small.job(b, payload={"prompt": "b's own secret"}))
    known = event_id(job.event_ms, job.event_seq)
    chance = random.Random(11)
    values = [known, *(fuzzed(job, other, chance) for _ in range(FUZZED - 1))]
    firsts: dict[str, str] = {}

    async def client(mine: list[str]) -> None:
        reader, writer = await asyncio.open_connection(*small.server.address)
        for value in mine:
            writer.write(head(small, f"GET /v1/jobs/{job.job_id}/events", f"Last-Event-ID: {value}"))
            status = await reader.readline()
            assert status == b"HTTP/1.1 200 OK\r\n", (value, status)
            body = await reader.readuntil(b"0\r\n\r\n")
            assert b"secret" not in body
            assert other.job_id.encode() not in body
            assert job.job_id.encode() in body
            firsts[value] = body.partition(b"event: ")[2].partition(b"\n")[0].decode()
        writer.close()

    await asyncio.gather(*(client(values[n::8]) for n in range(8)))
    assert set(firsts.values()) == {"hello", "reset"}
    assert {value for value, first in firsts.items() if first == "hello"} <= {known, "0", "0-0", " "}
    assert firsts[known] == "hello"


async def test_what_no_header_can_hold_may_come_in_the_query(live: Live) -> None:
    for value in ["\0", "a\0b", "1-1\n", "\r\n\r\n", "\U0001f600", "\u0661-\u0661", "\ud800", "x" * 1024]:
        job_id = await live.job()
        await live.client.post(f"/v1/jobs/{job_id}/cancel")
        url = httpx2.URL(live.url + f"/v1/jobs/{job_id}/events")
        text = "".join(f"%{byte:02x}" for byte in value.encode("utf-8", "surrogatepass"))
        answer = await live.client.get(f"{url}?lastEventId={text}")
        reset = [line for line in answer.text.split("\n") if line.startswith("event: ")]
        assert (answer.status_code, reset) == (200, ["event: reset"])


async def test_a_query_that_is_too_long_is_the_one_refusal(small: Live) -> None:
    job_id = await small.job()
    answer = await small.client.get(f"/v1/jobs/{job_id}/events?lastEventId={'x' * 1025}")
    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")


async def test_a_reset_is_the_whole_job_and_a_new_place_to_go_on_from(live: Live) -> None:
    job = await live.running()
    await live.note(job, "1", "2")
    async with live.client.stream(
        "GET", f"/v1/jobs/{job.job_id}/events", headers={"Last-Event-ID": "garbage"}
    ) as answer:
        stream = frames(answer)
        reset = await anext(stream)
        assert reset.event == "reset"
        now = (await live.client.get(f"/v1/jobs/{job.job_id}")).json()
        assert reset.data == {"job": {**now, "partial": False}, "last_event_id": reset.id}
        assert reset.id == now["last_event_id"]
        await live.note(job, '"after"')
        fresh = await anext(stream)
        assert (fresh.data["data"], fresh.data["seq"]) == ("after", 5)
    _, again = await some(live, job.job_id, reset.id, 1)
    assert again == fresh


async def test_a_reset_of_an_ended_job_is_followed_by_its_end(live: Live) -> None:
    job = await live.running()
    await live.done(job)
    (reset,) = await some(live, job.job_id, "garbage", 9)
    assert (reset.event, reset.data["job"]["status"]) == ("reset", "done")
    assert await some(live, job.job_id, reset.id, 9) == []


async def test_hello_is_what_a_read_gives_at_any_moment(live: Live) -> None:
    job = await live.running()
    for n in range(10):
        await live.note(job, json.dumps(n))
        (hello,) = await some(live, job.job_id, "", 0)
        now = (await live.client.get(f"/v1/jobs/{job.job_id}")).json()
        assert hello.data["job"] == {**now, "partial": False}
