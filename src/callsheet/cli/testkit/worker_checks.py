"""What a worker of the control plane must do, whatever it is written in. It has to serve the tasks of the kit.

`echo` answers with its payload. `fail` fails with the payload's `message`, retryable as its `retryable` says. `sleep`
takes the payload's `seconds`, and stops earlier when it is told to.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time

from callsheet.kernel import commands
from callsheet.kernel.job import Outcome, Status

from .harness import ENDS, TERMS, Stage
from .proxy import Asked, Fate, page, problem
from .report import Check, need

CLAIM = frozenset({"claim"})
BEATS = frozenset({"heartbeat", "heartbeats"})
SLACK_S = 1.5
LEAVE_S = 15.0
SETTLE_S = 0.2  # a server notices a broken connection within a moment
LOST = frozenset({"lease_lost", "job_not_found", "forbidden"})


async def does_the_work(stage: Stage) -> None:
    """A job comes to its end, and its result with it."""
    payload = {"n": 7, "text": "héllo ✓", "deep": [{"a": None}, 1.5, True]}
    job = await stage.ended(await stage.job("echo", payload))
    need(job.status is Status.SUCCEEDED, f"the job ended as {job.status}: {job.error}")
    need(json.loads(job.result or "null") == payload, f"its result is {job.result}, not its payload")


async def tells_failures(stage: Stage) -> None:
    """A failure is told with its message, and tried again as long as attempts are left."""
    job = await stage.ended(await stage.job("fail", {"message": "no such file"}, max_attempts=2))
    need(job.status is Status.DEAD_LETTER, f"the job ended as {job.status}, not as a dead letter")
    need(job.attempt_count == 2, f"it had {job.attempt_count} attempts, not 2")  # noqa: PLR2004
    need("no such file" in (job.error or ""), f"its error does not tell the message: {job.error}")


async def tells_final_failures(stage: Stage) -> None:
    """A failure that is not retryable is not tried again."""
    job = await stage.ended(await stage.job("fail", {"message": "wrong", "retryable": False}, max_attempts=5))
    need(job.status is Status.FAILED, f"the job ended as {job.status}, attempt {job.attempt_count}")


async def keeps_its_lease(stage: Stage) -> None:
    """Work that takes longer than a lease is not lost."""
    job = await stage.ended(await stage.job("sleep", {"seconds": TERMS.lease_s * 1.7}))
    need(job.status is Status.SUCCEEDED, f"the job ended as {job.status}: {job.error}")
    need(job.lease_losses == 0, f"its lease was lost {job.lease_losses} times; beat every {TERMS.beat_s:g} s")


async def survives_a_lost_claim(stage: Stage) -> None:
    """The answer to a claim is lost: the job still comes to its end."""
    job_id = await _claim_that_is_lost(stage)
    need((await stage.ended(job_id)).status is Status.SUCCEEDED, "the job did not succeed")


async def repeats_a_lost_claim(stage: Stage) -> None:
    """The answer to a claim is lost: the worker asks again by the same name, and the job has one attempt."""
    job_id = await _claim_that_is_lost(stage)
    job = await stage.ended(job_id)
    need(job.attempt_count == 1 and job.lease_losses == 0, f"it took {job.attempt_count} attempts; repeat the claim")


async def _claim_that_is_lost(stage: Stage) -> str:
    lost: list[str] = []

    async def fate(request: Asked) -> Fate:
        return Fate(cut=True) if request.verb == "claim" and not lost and await _waits() else Fate()

    async def _waits() -> bool:
        waiting = (await stage.engine.get(job_id)).status is Status.QUEUED
        lost.extend([job_id] if waiting else [])
        return waiting

    stage.proxy.fate = lambda _: Fate(instead=problem(503, "store_unavailable"))  # until the fault is in place
    stage.proxy.cut_all()
    await _until(lambda: not stage.proxy.waiting, "the proxy does not let go")
    await asyncio.sleep(SETTLE_S)
    job_id = await stage.job("echo", {"n": 1})
    stage.proxy.fate = fate
    return job_id


async def repeats_a_lost_end(stage: Stage) -> None:
    """The answer to a completion is lost: it is said again, and the job has run once."""
    stage.fates(ENDS, Fate(cut=True), Fate(cut=True))
    job_id = await stage.job("echo", {"n": 2})
    job = await stage.ended(job_id)
    need(job.status is Status.SUCCEEDED, f"the job ended as {job.status}")
    await _until(lambda: _ends_of(stage, job_id) >= 3, "a completion whose answer was lost was not said again")  # noqa: PLR2004
    need(job.attempt_count == 1, f"it had {job.attempt_count} attempts, not 1")


def _ends_of(stage: Stage, job_id: str) -> int:
    return sum(one.asked.verb in ENDS and job_id in one.asked.body.decode() for one in stage.proxy.passed)


async def waits_as_it_is_told(stage: Stage) -> None:
    """503 and 429 with Retry-After: it asks again, and not sooner."""
    busy = Fate(instead=problem(503, "store_unavailable", **{"Retry-After": "1"}))
    times: list[float] = []

    def fate(request: Asked) -> Fate:
        if request.verb not in ENDS or len(times) >= 3:  # noqa: PLR2004
            return Fate()
        times.append(time.monotonic())
        return busy if len(times) < 3 else Fate()  # noqa: PLR2004

    stage.proxy.fate = fate
    job = await stage.ended(await stage.job("echo", {"n": 3}))
    need(job.status is Status.SUCCEEDED, f"the job ended as {job.status}")
    pauses = [later - sooner for sooner, later in itertools.pairwise(times)]
    need(all(pause > 0.95 for pause in pauses), f"it asked again after {min(pauses, default=0):.2f} s, not after 1 s")  # noqa: PLR2004


async def goes_on_after_pages(stage: Stage) -> None:
    """A page with status 200 is no answer: it asks again."""
    stage.fates(frozenset(), *[Fate(instead=page())] * 4)
    job = await stage.ended(await stage.job("echo", {"n": 4}))
    need(job.status is Status.SUCCEEDED, f"the job ended as {job.status}")
    stage.fates(ENDS, *[Fate(instead=page())] * 2)
    job = await stage.ended(await stage.job("echo", {"n": 5}))
    need(job.attempt_count == 1, f"a completion that met a page was not said again: {job.attempt_count} attempts")


async def goes_on_after_cuts(stage: Stage) -> None:
    """Connections that break before the server hears: it asks again."""
    stage.fates(frozenset(), *[Fate(unheard=True)] * 4)
    job = await stage.ended(await stage.job("echo", {"n": 6}))
    need(job.status is Status.SUCCEEDED, f"the job ended as {job.status}")


async def bears_slow_answers(stage: Stage) -> None:
    """Answers that take a second are waited for."""
    stage.proxy.fate = lambda _: Fate(late_s=1.0)
    job = await stage.ended(await stage.job("echo", {"n": 8}))
    need((job.status, job.attempt_count) == (Status.SUCCEEDED, 1), f"{job.status} after {job.attempt_count} attempts")


async def leaves_holes(stage: Stage) -> None:
    """A claim that is never answered is given up after its wait and six seconds at most."""
    holes: list[tuple[float, float]] = []

    def fate(request: Asked) -> Fate:
        if request.verb != "claim":
            return Fate()
        holes.append((time.monotonic(), request.said.get("max_wait_ms", 0) / 1000))
        return Fate(hole=True) if len(holes) == 1 else Fate()

    stage.proxy.fate = fate
    stage.proxy.cut_all()
    await _until(lambda: len(holes) > 1, "a claim without an answer is waited for, for ever", 75)
    took_s, wait_s = holes[1][0] - holes[0][0], holes[0][1]
    need(took_s <= wait_s + 6, f"it took {took_s:.1f} s with a wait of {wait_s:g} s")


async def stops_what_is_cancelled(stage: Stage) -> None:
    """A job that is cancelled is stopped within a beat and a second."""
    took_s = await _cancel(stage)
    need(took_s <= TERMS.beat_s + SLACK_S, f"it took {took_s:.1f} s, with a beat every {TERMS.beat_s:g} s")


async def stops_at_once(stage: Stage) -> None:
    """With heartbeats that wait at the server a cancelled job is stopped within a second."""
    took_s = await _cancel(stage, settle_s=1.3)
    need(took_s <= 1.0, f"it took {took_s:.1f} s; send wait_ms with heartbeats")


async def _cancel(stage: Stage, settle_s: float = 0.0) -> float:
    job_id = await stage.job("sleep", {"seconds": 600})
    await stage.running(job_id)
    await asyncio.sleep(settle_s)
    start = time.monotonic()
    await stage.engine.cancel(job_id, "the test-kit")
    job = await stage.ended(job_id)
    need(job.status is Status.CANCELED, f"the job ended as {job.status}")
    return time.monotonic() - start


async def lets_lost_work_go(stage: Stage) -> None:
    """A lease that is lost ends the work: nothing more is said of it, and the next job is taken."""
    job_id = await stage.job("sleep", {"seconds": 600}, max_attempts=1)
    job = await stage.running(job_id)
    await asyncio.sleep(0.3)
    stage.proxy.passed.clear()
    await stage.engine.settle([commands.lose_lease(job, rand=0.0)._replace(expired_only=False)])
    await _until(lambda: _told_of_loss(stage), "no heartbeat came for a job that runs", TERMS.beat_s * 3)
    following = await stage.ended(await stage.job("echo", {"n": 10}), 2 + SLACK_S)
    need(following.status is Status.SUCCEEDED, "the next job did not succeed")
    need(_ends_of(stage, job_id) == 0, "it still told how the lost work had ended")


def _told_of_loss(stage: Stage) -> bool:
    beats = [one.answered.said for one in stage.proxy.passed if one.asked.verb in BEATS]
    answers = [answer for beat in beats for answer in (beat, *beat.get("leases", ()))]
    return any(answer.get("code") in LOST for answer in answers)


async def drains_when_asked(stage: Stage) -> None:
    """`drain` in an answer: it finishes what runs, takes no more, and ends with 0."""
    job_id = await stage.job("sleep", {"seconds": 1.5})
    await stage.running(job_id)
    stage.proxy.fate = lambda _: Fate(change=lambda said: {**said, "drain": True})
    code = await stage.exited(LEAVE_S + 20)
    need(code == 0, f"it ended with {code}")
    await _ended_well_or_handed_back(stage, job_id)


async def leaves_in_peace(stage: Stage) -> None:
    """SIGTERM: it finishes its job or hands it back, which costs no attempt, and ends with 0."""
    job_id = await stage.job("sleep", {"seconds": 3})
    await stage.running(job_id)
    stage.signal()
    code = await stage.exited(LEAVE_S)
    need(code == 0, f"it ended with {code}")
    await _ended_well_or_handed_back(stage, job_id)


async def _ended_well_or_handed_back(stage: Stage, job_id: str) -> None:
    job = await stage.engine.get(job_id)
    outcomes = [attempt.outcome for attempt in await stage.engine.store.attempts(job_id)]
    fine = job.status is Status.SUCCEEDED or (job.status is Status.QUEUED and job.attempt_count == 0)
    need(fine, f"the job is {job.status} after {job.attempt_count} attempts")
    need(set(outcomes) <= {Outcome.SUCCEEDED, Outcome.RELEASED}, f"its attempts ended as {outcomes}")
    if job.status is Status.QUEUED:
        await stage.engine.cancel(job_id)


async def leaves_at_once_when_idle(stage: Stage) -> None:
    """SIGTERM to a worker that waits for jobs: it ends within five seconds."""
    await _until(lambda: stage.proxy.passed or stage.proxy.waiting, "it does not ask for jobs")
    await asyncio.sleep(0.5)
    stage.signal()
    code = await stage.exited(5)
    need(code == 0, f"it ended with {code}")


async def takes_no_for_an_answer(stage: Stage) -> None:
    """401 is final: it ends, with a code other than 0, and does not ask for ever."""
    verbs: list[str] = []

    def fate(request: Asked) -> Fate:
        verbs.append(request.verb)
        return Fate(instead=problem(401, "unauthorized"))

    stage.proxy.fate = fate
    job_id = await stage.job("echo", {"n": 11})
    stage.proxy.cut_all()
    code = await stage.exited(LEAVE_S)
    await stage.engine.cancel(job_id)
    need(code != 0, "it ended with 0, as if all were well")
    need(len(verbs) <= 10, f"it asked {len(verbs)} times")  # noqa: PLR2004


async def _until(fact: object, otherwise: str, within_s: float = 10.0) -> None:
    assert callable(fact)  # noqa: S101 - a function of ours
    until = time.monotonic() + within_s
    while not fact():
        need(time.monotonic() < until, otherwise)
        await asyncio.sleep(0.02)


CHECKS: list[Check[Stage]] = [
    Check("C2 C7", "It claims a job, does it, and tells its result.", does_the_work),
    Check("C8", "A failure is told with its message and tried again.", tells_failures),
    Check("C8", "A failure that is not retryable is not tried again.", tells_final_failures),
    Check("C6 C11", "Heartbeats keep a lease for as long as the work takes.", keeps_its_lease),
    Check("goal 2", "The answer to a claim is lost: the job comes to its end.", survives_a_lost_claim),
    Check("claim_request_id", "The same, with one attempt.", repeats_a_lost_claim, extension=True),
    Check("C9", "The answer to a completion is lost: it is said again.", repeats_a_lost_end),
    Check("answers", "503 with Retry-After: it asks again, not sooner.", waits_as_it_is_told),
    Check("answers", "An HTML page with status 200 is no answer.", goes_on_after_pages),
    Check("answers", "Connections that break are made again.", goes_on_after_cuts),
    Check("answers", "Slow answers are waited for.", bears_slow_answers),
    Check("answers", "A request that is never answered is given up.", leaves_holes, slow=True),
    Check("cancel", "A cancelled job is stopped within a beat and a second.", stops_what_is_cancelled, extension=True),
    Check("wait_ms", "A cancelled job is stopped within a second.", stops_at_once, extension=True),
    Check("C6", "A lost lease ends the work, and nothing more is told of it.", lets_lost_work_go),
    Check("drain", "`drain` in an answer: it finishes, takes no more, and ends.", drains_when_asked, extension=True),
    Check("release", "SIGTERM: the job is finished or handed back.", leaves_in_peace, extension=True),
    Check("release", "SIGTERM while it waits for jobs: it ends within five seconds.", leaves_at_once_when_idle),
    Check("answers", "401 is final: it ends, and says so by its exit code.", takes_no_for_an_answer),
]
