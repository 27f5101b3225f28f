"""Rules about jobs beside one another: limits, unique keys, schedules and dependencies.

What overlaps is judged by the machine's monotonic clock, at moments when a job surely held its key: the store's clock
is unusable, because it steps.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from tests.storm.checker import rule
from tests.storm.history import Fact, History, grouped

Span = tuple[int, int, str]


@rule("S9 concurrency limits hold")
def limits(history: History) -> Iterator[str]:
    """Of attempts that kept their claim to the end no more overlap than the limit of their key allows.

    A job with a lost lease may continue as a zombie; zombies are excluded.
    """
    limited_jobs = {job_id: body for job_id, body in history.made.items() if body.get("concurrency_key")}
    by_key = grouped([{"job": job_id, **body} for job_id, body in limited_jobs.items()], "concurrency_key")
    for key, jobs in by_key.items():
        spans = [span for job in jobs for span in _held(history, job["job"])]
        most, at = _most_at_once(spans)
        if most > jobs[0]["concurrency_limit"]:
            names = [name for begin, end, name in spans if begin <= at < end]
            yield f"{most} jobs with {key!r} ran at once: {names}"


def _held(history: History, job_id: str) -> Iterator[Span]:
    """Give the spans in which a job ran and surely held its claim."""
    for one in history.attempts.get(job_id, []):
        run = history.executions.get((job_id, one["claim_version"]), {})
        if one["outcome"] == "succeeded" and "began" in run and "returned" in run:
            yield run["began"], run["returned"], job_id


def _most_at_once(spans: list[Span]) -> tuple[int, int]:
    """Return the maximum number of overlapping spans, and its time."""
    moments = sorted([(end, -1) for _, end, _ in spans] + [(begin, 1) for begin, _, _ in spans])
    depths = list(itertools.accumulate(step for _, step in moments))
    most = max(depths, default=0)
    return most, moments[depths.index(most)][0] if depths else 0


@rule("S4 one active job per unique key")
def unique(history: History) -> Iterator[str]:
    """Of two jobs with one unique key, the first ended before the second was acknowledged or ran."""
    created_jobs = {fact["job"]: fact["at"] for fact in history.of("acknowledged") if fact["created"]}
    keyed_jobs = [{"job": job_id, **request} for job_id, request in history.made.items() if request.get("unique_key")]
    for key, jobs in grouped(keyed_jobs, "unique_key").items():
        spans = [_active(history, job["job"], created_jobs.get(job["job"])) for job in jobs]
        ordered = sorted(span for span in spans if span is not None)
        for one, other in itertools.pairwise(ordered):
            if other[0] < one[1]:
                yield f"jobs {one[2]} and {other[2]} were active at once with {key!r}"


def _active(history: History, job_id: str, acknowledged_at: int | None) -> Span | None:
    """Return the span in which a job was surely active: from its answer or first run to the end of its work."""
    end = history.work_ended_at(job_id)
    began = [run["began"] for (job, _), run in history.executions.items() if job == job_id and "began" in run]
    begins = [*began, *([acknowledged_at] if acknowledged_at is not None else [])]
    return (min(begins), end, job_id) if begins and end is not None and min(begins) < end else None


@rule("a slot of a schedule fires at most once")
def slots(history: History) -> Iterator[str]:
    """Each slot has one job, each schedule has fired its first slot, and slots are on the hour as the line says."""
    fired: dict[tuple[str, int], list[str]] = {}
    for job_id, job in history.jobs.items():
        if match := re.fullmatch(r"schedule:(.+):(\d+)", job["correlation_id"]):
            fired.setdefault((match[1], int(match[2])), []).append(job_id)
    for (name, slot), jobs in fired.items():
        if len(jobs) > 1:
            yield f"the slot {slot} of {name!r} has the jobs {jobs}"
        if slot % 3_600_000:
            yield f"{name!r} fired at {slot}, which is no full hour"
    names = {name for name, _ in fired}
    for fact in history.of("scheduled"):
        if fact["key"] not in names:
            yield f"the schedule {fact['key']!r} never fired"


@rule("S5 dependencies block until they are met")
def dependencies(history: History) -> Iterator[str]:
    """A dependent job starts after its parents' work, and never when it should be canceled."""
    firsts: dict[str, int] = {}
    for (job_id, _), run in history.executions.items():
        if "began" in run:
            firsts[job_id] = min(run["began"], firsts.get(job_id, run["began"]))
    for job_id, request in history.made.items():
        if job_id in firsts and request.get("depends_on"):
            yield from _too_early(history, job_id, request, firsts[job_id])


def _too_early(history: History, job_id: str, request: Fact, began_at: int) -> Iterator[str]:
    if request["expects"] == ["canceled"]:
        yield f"job {job_id} began, though a job that it depends on did not succeed"
    for parent in request["depends_on"]:
        ended_at = history.work_ended_at(parent)
        errors_raised = [fact["at"] for fact in history.of("raised") if fact["job"] == parent]
        moments = [ended_at] if ended_at is not None else errors_raised
        if not moments or began_at < min(moments):
            yield f"job {job_id} began before job {parent}, which it depends on, had ended"
