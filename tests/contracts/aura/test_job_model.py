"""The contract's job model, pure: legal moves, order of times, progress that only rises, ends, resumability."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.contracts.aura.models import STEPS, can_resume, job_body, last_step, stage_of, utc, word_of
from callsheet.kernel import commands
from callsheet.kernel.apply import after_settlement, timeline_faults
from callsheet.kernel.contracts import AURA
from callsheet.kernel.contracts.aura import RESUMABLE_STAGES
from callsheet.kernel.errors import IllegalMove
from callsheet.kernel.job import Job, Status
from callsheet.kernel.retry import JobError
from tests.kernel.jobs import a_job

WORDS = ("Queued", "Running", "Done", "Failed", "Canceled")
LEGAL = {
    ("Queued", "Running"),
    ("Queued", "Canceled"),
    ("Running", "Done"),
    ("Running", "Failed"),
    ("Running", "Canceled"),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(WORDS, 2)))
def test_only_the_contracts_moves_are_legal(before: str, after: str) -> None:
    assert AURA.allows(before, after) is ((before, after) in LEGAL)


@pytest.mark.parametrize("end", ["succeed", "dead_letter", "cancel"])
def test_terminal_is_terminal(end: str) -> None:
    job = a_job(contract="aura")
    settlement = {
        "succeed": lambda: commands.succeed(job),
        "dead_letter": lambda: commands.dead_letter(job, JobError("e", "m")),
        "cancel": lambda: commands.cancel(job),
    }[end]()
    ended_job = after_settlement(job, settlement, job.event_ms + 5)
    assert ended_job.status.terminal
    attempts: list[Callable[[], object]] = [
        lambda: commands.start(ended_job),
        lambda: commands.succeed(ended_job),
        lambda: commands.fail(ended_job, JobError("e", "m"), rand=0),
        lambda: commands.cancel(ended_job),
        lambda: commands.requeue(ended_job),
        lambda: commands.progress(ended_job, 50),
    ]
    for again in attempts:
        with pytest.raises(IllegalMove):
            again()


@given(st.lists(st.floats(-500, 500), min_size=1, max_size=30))
def test_progress_is_clamped_and_never_falls(reports: list[float]) -> None:
    job = a_job(contract="aura")
    highest = 0.0
    for report in reports:
        job = after_settlement(job, commands.progress(job, report), job.event_ms)
        assert highest <= job.progress <= 100
        highest = max(highest, round(min(100.0, max(0.0, report)), 2))
        assert job.progress == highest


def test_the_time_of_the_end_is_that_of_its_kind() -> None:
    job = a_job(contract="aura")
    for settlement, name in (
        (commands.succeed(job), "completedUtc"),
        (commands.cancel(job), "canceledUtc"),
        (commands.dead_letter(job, JobError("e", "m")), None),
    ):
        ended_job = after_settlement(job, settlement, job.event_ms + 7)
        assert timeline_faults(ended_job) == []
        body = job_body(ended_job, None)
        assert body["endedUtc"] == utc(ended_job.ended_at or 0)
        for other in ("completedUtc", "canceledUtc"):
            assert body[other] == (body["endedUtc"] if other == name else None)
        assert body["createdUtc"] <= body["queuedUtc"] <= body["startedUtc"] <= body["endedUtc"]


@pytest.mark.parametrize(
    ("kept", "last"),
    [
        ((), None),
        (("Script",), "Script"),
        (("Script", "Voice"), "Voice"),
        (STEPS, "Visuals"),
        (("Voice",), None),  # what it was made from is missing
        (("Script", "Visuals"), "Script"),
        (("Script", "Rendering"), "Script"),
    ],
)
def test_the_last_completed_step_has_all_before_it(kept: tuple[str, ...], last: str | None) -> None:
    assert last_step(dict.fromkeys(kept, "1")) == last


def test_only_what_ended_badly_with_something_kept_can_be_resumed() -> None:
    results = {(status, last): can_resume(_in(status), last) for status in Status for last in (None, "Script", "Voice")}
    assert {status for (status, last), can in results.items() if can} == {
        Status.FAILED,
        Status.DEAD_LETTER,
        Status.CANCELED,
    }
    assert not any(can for (_, last), can in results.items() if last is None)
    assert {step.lower() for step in STEPS} == RESUMABLE_STAGES


def test_words_and_stages_of_every_status() -> None:
    assert [word_of(_in(status)) for status in Status] == ["Queued", "Running", "Done", "Failed", "Failed", "Canceled"]
    assert stage_of(a_job(Status.QUEUED, contract="aura")) == "Queued"
    assert stage_of(a_job(contract="aura")) == "Initialization"
    assert stage_of(a_job(contract="aura", stage="Voice")) == "Voice"


def _in(status: Status) -> Job:
    return a_job(status, contract="aura")
