"""What a control plane must answer. Checks of extensions are made where the server says that it speaks protocol 2."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import httpx2

from .client import NAMES, Peer
from .report import Check, Skipped, need

CLAIM_FIELDS = (*NAMES, "payload", "lease_ttl_seconds", "heartbeat_interval_seconds")
FEWEST_CHARACTERS = 22  # of a token of 128 bits
NOT_FOUND, CONFLICT = 404, 409
CLIENT_ERRORS = range(400, 500)
UNKNOWN = "0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1"


async def _claim_new_job(peer: Peer, **more: Any) -> tuple[Any, dict[str, Any], str]:
    stream = peer.stream()
    await peer.add(stream, **more)
    hand = peer.hand()
    return hand, await hand.job(stream), stream


async def nothing_is_claimed_of_nothing(peer: Peer) -> None:
    """A stream without jobs."""
    start = time.monotonic()
    need(not (await peer.hand().claim(peer.stream(), wait_ms=1_000))["claimed"], "something was claimed")
    took_s = time.monotonic() - start
    need(0.9 < took_s < 3, f"a wait of 1 s took {took_s:.1f} s")  # noqa: PLR2004


async def a_claim_gives_all(peer: Peer) -> None:
    """The fields of a claimed job."""
    payload = {"a": [1, 2.5, None, "é"]}
    _, job, stream = await _claim_new_job(peer, payload=payload)
    missing = [name for name in CLAIM_FIELDS if name not in job]
    need(not missing, f"the answer has no {', '.join(missing)}")
    need(job["payload"] == payload, f"the payload came as {job['payload']!r}")
    need(_queue(job) == stream, f"the stream is told as {job['stream']!r}")
    need(job["heartbeat_interval_seconds"] < job["lease_ttl_seconds"], "a beat is due after the lease is over")
    need(_is_uuid(job["job_id"]), f"{job['job_id']!r} is no UUID")


def _queue(job: dict[str, Any]) -> str:
    """The stream as it was asked for; one in Redis may be told by its key, with a prefix before the name."""
    return str(job["stream"]).rpartition(":")[2]


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


async def tokens_cannot_be_guessed(peer: Peer) -> None:
    """Two tokens are long and differ."""
    tokens = [(await _claim_new_job(peer))[1]["lease_token"] for _ in range(2)]
    need(min(map(len, tokens)) >= FEWEST_CHARACTERS, f"a token has {min(map(len, tokens))} characters")
    need(tokens[0] != tokens[1], "two claims have the same token")


async def one_of_many_wins(peer: Peer) -> None:
    """Claims at the same moment."""
    stream = peer.stream()
    await peer.add(stream)
    answers = await asyncio.gather(*(peer.hand().claim(stream) for _ in range(20)))
    need(sum(answer["claimed"] for answer in answers) == 1, "one job was claimed more than once, or never")


async def streams_have_their_order(peer: Peer) -> None:
    """The first stream that has a job is served first."""
    low, high = peer.stream(), peer.stream()
    await peer.add(low)
    await peer.add(high)
    hand = peer.hand()
    job = [_queue(await hand.job(high, low)) for _ in range(2)]
    need(job == [high, low], "streams are not served in the order asked")


async def a_parked_claim_is_woken(peer: Peer) -> None:
    """A claim waits for a job that comes later."""
    stream = peer.stream()
    waiting_claim = asyncio.create_task(peer.hand().claim(stream, wait_ms=15_000))
    await asyncio.sleep(0.3)
    await peer.add(stream)
    start = time.monotonic()
    need((await waiting_claim)["claimed"], "a claim that waited was given nothing")
    need(time.monotonic() - start < 5, f"it heard of the job after {time.monotonic() - start:.1f} s")  # noqa: PLR2004


async def a_heartbeat_extends(peer: Peer) -> None:
    """The answer to a heartbeat."""
    hand, job, _ = await _claim_new_job(peer)
    answer = await hand.say("heartbeat", job)
    need(answer.status == httpx2.codes.OK and answer.body.get("ok") is True, f"a heartbeat was answered with {answer}")
    need("lease_expires_at" in answer.body, "the answer has no lease_expires_at")


async def tokens_prove(peer: Peer) -> None:
    """A wrong token, or another worker's, changes nothing."""
    hand, job, _ = await _claim_new_job(peer)
    for who, claim in ((hand, {**job, "lease_token": "x" * 43}), (peer.hand(), job)):
        for verb, more in (("heartbeat", {}), ("complete", {"result": 1}), ("fail", {"error": {"code": "x"}})):
            answer = await who.say(verb, claim, **more)
            need(
                answer.status in CLIENT_ERRORS,
                f"{verb} with a lease that is not its own was answered with {answer.status}",
            )
    need((await hand.say("complete", job, result=1)).status == httpx2.codes.OK, "the rightful worker was refused, then")


async def unknown_jobs_are_not_found(peer: Peer) -> None:
    """A job that does not exist."""
    hand, job, _ = await _claim_new_job(peer)
    answer = await hand.say("complete", {**job, "job_id": UNKNOWN}, result=1)
    need(answer.status == NOT_FOUND, f"the completion of an unknown job was answered with {answer.status}")


async def a_completion_may_be_said_twice(peer: Peer) -> None:
    """Ends are idempotent, and an end is an end."""
    hand, job, _ = await _claim_new_job(peer)
    for _ in range(2):
        answer = await hand.say("complete", job, result={"frames": 7})
        need(answer.status == httpx2.codes.OK, f"a completion was answered with {answer.status}")
        need(answer.body.get("ok") is True and answer.body.get("ack") is True, f"it was answered with {answer.body}")
    other = await hand.say("fail", job, error={"code": "x"})
    need(other.status == CONFLICT, f"another outcome of an ended attempt was answered with {other.status}")


async def a_failure_is_tried_again(peer: Peer) -> None:
    """A failure with attempts left."""
    hand, job, _ = await _claim_new_job(peer)
    answer = await hand.say("fail", job, error={"code": "OOM", "message": "m", "stack": "s", "retryable": True})
    need(answer.status == httpx2.codes.OK and answer.body.get("ack") is True, f"a failure was answered with {answer}")
    need(answer.body.get("requeued") is True and answer.body.get("dlq") is False, f"it was answered with {answer.body}")


async def the_last_failure_is_a_dead_letter(peer: Peer) -> None:
    """A failure with none left."""
    hand, job, _ = await _claim_new_job(peer, max_attempts=1)
    answer = await hand.say("fail", job, error={"code": "OOM", "message": "m", "stack": "s", "retryable": True})
    need(answer.body.get("requeued") is False and answer.body.get("dlq") is True, f"it was answered with {answer.body}")


async def a_final_failure_is_not_tried_again(peer: Peer) -> None:
    """A failure that is not retryable."""
    hand, job, _ = await _claim_new_job(peer)
    answer = await hand.say("fail", job, error={"code": "bad", "message": "", "stack": "", "retryable": False})
    need(answer.body.get("requeued") is False, f"it was answered with {answer.body}")


async def an_expired_lease_is_lost(peer: Peer) -> None:
    """A worker that is never heard of again."""
    hand, job, stream = await _claim_new_job(peer)
    within_s = job["lease_ttl_seconds"] + 30
    again = await peer.hand().job(stream, within_s=within_s)
    need(again["job_id"] == job["job_id"], "another job came")
    answer = await hand.say("complete", job, result=1)
    need(answer.status == CONFLICT, f"the completion of a lost attempt was answered with {answer.status}")
    need((await hand.say("heartbeat", job)).status == CONFLICT, "so was its heartbeat")


async def nonsense_is_told(peer: Peer) -> None:
    """Wrong requests are 4xx with a code."""
    hand = peer.hand()
    for verb, body in (("claim", {}), ("claim", {"streams": "x"}), ("heartbeat", {}), ("complete", {"job_id": 7})):
        answer = await hand.send(verb, **body)
        need(answer.status in CLIENT_ERRORS, f"{verb} with {body} was answered with {answer.status}")


async def strangers_are_refused(peer: Peer) -> None:
    """A token that is none."""
    async with peer.bare("nobody") as client:
        answer = await client.post("/internal/worker/claim", json={"worker_id": "x", "streams": ["x"]})
    need(answer.status_code in (401, 403), f"a stranger was answered with {answer.status_code}")


async def a_claim_may_be_repeated(peer: Peer) -> None:
    """A claim of the same name, twice."""
    stream, hand, name = peer.stream(), peer.hand(), uuid.uuid4().hex
    for _ in range(2):
        await peer.add(stream)
    first = await hand.job(stream, claim_request_id=name, protocol=2)
    again = await hand.claim(stream, claim_request_id=name, protocol=2)
    need(again.get("job_id") == first["job_id"], "a repeat was given another job")
    need(again.get("lease_token") == first["lease_token"], "a repeat was given another lease")


async def a_release_costs_nothing(peer: Peer) -> None:
    """A job that is handed back."""
    hand, job, stream = await _claim_new_job(peer, max_attempts=1)
    need((await hand.say("release", job)).status == httpx2.codes.OK, "a release was refused")
    again = await hand.job(stream)
    need(again["job_id"] == job["job_id"] and again["attempt"] == 1, f"it came back as attempt {again['attempt']}")


async def many_beats_are_one(peer: Peer) -> None:
    """A good and a bad lease in one request."""
    hand, job, _ = await _claim_new_job(peer)
    leases = [{"job_id": job["job_id"], "lease_token": token} for token in (job["lease_token"], "wrong")]
    answer = await hand.send("heartbeats", leases=leases, protocol=2)
    oks = [one.get("ok") for one in answer.body.get("leases", [])]
    need(oks == [True, False], f"a good and a bad lease were answered with {answer}")


async def many_moves_are_one(peer: Peer) -> None:
    """Reports and an end in one request."""
    hand, job, _ = await _claim_new_job(peer)
    lease = {name: job[name] for name in ("job_id", "attempt_id", "lease_token")}
    moves = [
        {**lease, "do": "progress", "percent": 40, "message": "so far"},
        {**lease, "do": "checkpoint", "name": "one", "data": {"x": 1}},
        {**lease, "do": "complete", "result": {"done": True}},
    ]
    answer = await hand.send("moves", moves=moves, protocol=2)
    need([a.get("ok") for a in answer.body.get("answers", [])] == [True] * 3, f"moves were answered with {answer}")
    again = await hand.send("moves", moves=moves[-1:], protocol=2)
    need(again.body["answers"][0].get("repeated") is True, "a repeated end is not told as one")


async def steps_are_remembered(peer: Peer) -> None:
    """A step that was kept."""
    hand, job, _ = await _claim_new_job(peer)
    lease = {name: job[name] for name in ("job_id", "attempt_id", "lease_token")}
    await hand.send("moves", moves=[{**lease, "do": "checkpoint", "name": "one", "data": {"x": 1}}], protocol=2)
    answer = await hand.say("checkpoints", job)
    need(answer.body.get("checkpoints") == {"one": {"x": 1}}, f"the steps are told as {answer.body}")


async def a_waiting_beat_hears_of_a_cancel(peer: Peer) -> None:
    """A heartbeat that waits while its job is cancelled."""
    hand, job, _ = await _claim_new_job(peer)
    waiting = asyncio.create_task(hand.say("heartbeat", job, wait_ms=10_000, protocol=2))
    await asyncio.sleep(0.3)
    start = time.monotonic()
    if not await peer.cancel(job["job_id"]):
        waiting.cancel()
        raise Skipped("POST /v1/jobs/{job_id}/cancel does not cancel it")
    answer = await waiting
    need(answer.body.get("cancel") is True, f"the heartbeat was answered with {answer.body}")
    need(time.monotonic() - start < 1, f"it heard of it after {time.monotonic() - start:.1f} s")


async def other_protocols_are_told(peer: Peer) -> None:
    """A protocol that nobody speaks."""
    answer = await peer.hand().send("claim", streams=[peer.stream()], max_wait_ms=0, protocol=99)
    need(answer.status == 426, f"protocol 99 was answered with {answer.status}")  # noqa: PLR2004
    need("min_version" in answer.body, "the answer has no min_version")


CHECKS: list[Check[Peer]] = [
    Check("C5", "A claim of nothing waits as long as it is asked to, then says so.", nothing_is_claimed_of_nothing),
    Check("C3 C12", "A claim answers with all its fields; a job_id is a UUID.", a_claim_gives_all),
    Check("C2", "A lease token has 128 bits or more, and is new for each claim.", tokens_cannot_be_guessed),
    Check("C2", "Of 20 claims of one job one wins.", one_of_many_wins),
    Check("C4", "Streams are served in their order.", streams_have_their_order),
    Check("C1", "A claim that waits is woken by a new job.", a_parked_claim_is_woken),
    Check("C6", "A heartbeat extends the lease.", a_heartbeat_extends),
    Check("C9", "A token proves its own claim, to its own worker, and nothing else.", tokens_prove),
    Check("C9", "An unknown job is 404.", unknown_jobs_are_not_found),
    Check(
        "C7 C9",
        "A completion is acknowledged, also when said twice; another outcome is 409.",
        a_completion_may_be_said_twice,
    ),
    Check("C8", "A failure is requeued while attempts are left.", a_failure_is_tried_again),
    Check("C8", "The last failure is a dead letter.", the_last_failure_is_a_dead_letter),
    Check("C8", "A failure that is not retryable is not requeued.", a_final_failure_is_not_tried_again),
    Check(
        "C10",
        "An expired lease is lost: the job comes again, and its old worker gets 409.",
        an_expired_lease_is_lost,
        slow=True,
    ),
    Check("answers", "A wrong request is 4xx.", nonsense_is_told),
    Check("answers", "A wrong token is 401 or 403.", strangers_are_refused),
    Check(
        "claim_request_id",
        "A repeated claim answers with the same job and lease.",
        a_claim_may_be_repeated,
        extension=True,
    ),
    Check(
        "release", "A job handed back comes again, and no attempt is counted.", a_release_costs_nothing, extension=True
    ),
    Check("heartbeats", "Many leases in one request, each with its answer.", many_beats_are_one, extension=True),
    Check(
        "moves",
        "Many moves in one request, each with its answer; ends may be repeated.",
        many_moves_are_one,
        extension=True,
    ),
    Check("checkpoints", "The results of steps are remembered.", steps_are_remembered, extension=True),
    Check(
        "wait_ms",
        "A heartbeat that waits hears of a cancellation within a second.",
        a_waiting_beat_hears_of_a_cancel,
        extension=True,
    ),
    Check(
        "protocol",
        "A protocol that is not spoken is 426, with those that are.",
        other_protocols_are_told,
        extension=True,
    ),
]
