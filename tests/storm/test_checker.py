"""The checker must be able to fail: each rule rejects a history, made by hand, in which its promise is broken."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.storm import history as writing
from tests.storm.checker import RULES, check
from tests.storm.history import Fact, History, append, note

JOB, FILM, LONE, TWIN, CHILD = (f"00000000-0000-4000-8000-00000000000{n}" for n in range(5))
FIRST, SECOND = f"evt_{FILM.replace('-', '')}_1_claimed", f"evt_{FILM.replace('-', '')}_1_succeeded"
HOUR_MS = 3_600_000
Break = Callable[[History], None]


def job(job_id: str, kind: str, mark: str, **fields: Any) -> Fact:
    usual = {
        "job_id": job_id, "kind": kind, "contract": "callsheet", "status": "succeeded", "progress": 100.0,
        "payload": json.dumps({"mark": mark, "n": 10}), "result": '{"claim": 1}', "error": None, "created_at": 1,
        "started_at": 2, "ended_at": 9, "attempt_count": 1, "event_seq": 3, "correlation_id": "",
        "claim_version": 1,
    }  # fmt: skip
    return {"fact": "job", **usual, **fields}


def lived(made: Fact) -> list[Fact]:
    """Return a job with one attempt that succeeded, and its events."""
    job_id = made["job_id"]
    attempt = {"job_id": job_id, "claim_version": 1, "attempt": 1, "started_at": 2, "ended_at": 9, "error": None}
    types = ((1, "queued", 0.0), (2, "checkpoint", 50.0), (3, "done", 100.0))
    return [
        made,
        {"fact": "attempt", **attempt, "outcome": "succeeded"},
        *(
            {"fact": "event", "job_id": job_id, "seq": n, "type": t, "ms": n, "progress": p, "step": ""}
            for n, t, p in types
        ),
    ]


def ran(job_id: str, began: int, returned: int) -> list[Fact]:
    run = {"job": job_id, "claim": 1}
    return [{"fact": "began", "at": began, **run}, {"fact": "returned", "at": returned, **run}]


def asked(job_id: str, at: int, **fields: Any) -> list[Fact]:
    """Return the facts of a request and its answer; the key is also the job's mark."""
    key = fields.pop("key", f"key of {job_id}")
    return [
        {"fact": "asked", "at": at, "key": key, "expects": ["succeeded"], **fields},
        {"fact": "acknowledged", "at": at + 1, "key": key, "job": job_id, "created": True},
    ]


def callback(event_id: str, status: str) -> list[Fact]:
    body = json.dumps({"event_id": event_id, "status": status})
    row = {"fact": "callback", "job_id": FILM, "event_id": event_id, "body": body, "status": "delivered"}
    came = {"fact": "received", "at": 50, "event": event_id, "job": FILM, "body": body, "verified": True}
    return [row, {**came, "status": 503}, {**came, "status": 204}]


def good() -> History:
    """Return a small history in which every promise is kept."""
    limited, unique = {"concurrency_key": "k", "concurrency_limit": 1}, {"unique_key": "u"}
    facts = [
        *asked(JOB, 10), *ran(JOB, 20, 30),
        *asked(FILM, 10), *ran(FILM, 20, 30),
        *asked(LONE, 10, **limited, **unique), *ran(LONE, 20, 30),
        *asked(TWIN, 40, **limited, **unique), *ran(TWIN, 50, 60),
        *asked(CHILD, 10, depends_on=[JOB, LONE]), *ran(CHILD, 40, 50),
        {"fact": "scheduled", "at": 5, "key": "each hour"},
        {"fact": "canceled", "at": 5, "job": JOB, "state": "running", "status": 202},
        {"fact": "stored", "at": 25, "job": FILM, "same": True},
        {"fact": "stepped", "at": 25, "job": JOB, "claim": 1},
        {"fact": "watched", "at": 9, "job": JOB, "by": "hand", "seen": [[1, "queued"], [2, "checkpoint"], [3, "done"]]},
    ]  # fmt: skip
    ticks = [f"00000000-0000-4000-8000-00000000001{n}" for n in range(2)]
    end = [
        *lived(job(JOB, "count", f"key of {JOB}")),
        *lived(job(FILM, "film", f"key of {FILM}", contract="euterpe")),
        *(fact for one in (LONE, TWIN, CHILD) for fact in lived(job(one, "keyed", f"key of {one}"))),
        *lived(job(f"{JOB[:-1]}9", "follow", f"after {JOB}")),
        *lived(job(ticks[0], "tick", "tick", correlation_id=f"schedule:each hour:{HOUR_MS}")),
        *lived(job(ticks[1], "tick", "tick", correlation_id=f"schedule:each hour:{2 * HOUR_MS}")),
    ]
    facts += [fact for one in (f"{JOB[:-1]}9", *ticks) for fact in ran(one, 40, 41)]
    for event_id, status in ((FIRST, "claimed"), (SECOND, "succeeded")):
        row, *came = callback(event_id, status)
        end.append(row)
        facts += came
    end.append({"fact": "left", "workspaces": [], "processes": [], "secrets": []})
    return History(facts, end)


def row(history: History, fact: str, **fields: Any) -> Fact:
    """Return the first fact of a kind with these fields, to be changed."""
    result = (f for f in [*history.facts, *history.end] if f["fact"] == fact)
    return next(f for f in result if all(f.get(name) == value for name, value in fields.items()))


def change(fact: str, where: dict[str, Any], **fields: Any) -> Break:
    def apply(history: History) -> None:
        row(history, fact, **where).update(fields)

    return apply


def remove(fact: str, **where: Any) -> Break:
    def apply(history: History) -> None:
        gone = row(history, fact, **where)
        for facts in (history.facts, history.end):
            facts[:] = [one for one in facts if one is not gone]

    return apply


def add(*facts: Fact, end: bool = False) -> Break:
    return lambda history: (history.end if end else history.facts).extend(copy.deepcopy(facts))


def twice(fact: str, **where: Any) -> Break:
    return lambda history: history.end.append(dict(row(history, fact, **where)))


of_job = {"job_id": JOB}
STEPPED_TWICE = [{"fact": "stepped", "at": 1, "job": JOB, "claim": claim} for claim in (1, 2)]
BREAKS: dict[str, list[Break]] = {
    "G1 an acknowledged job is never lost": [
        remove("job", job_id=JOB),
        change("job", of_job, status="dead_letter"),
        change("job", of_job, status="canceled"),
    ],
    "G1 every job comes to its end": [
        change("job", of_job, status="running"),
        add({"fact": "stuck", "at": 1, "what": "jobs", "left": 3}),
    ],
    "G2 exactly one committed outcome": [
        twice("event", job_id=JOB, type="done"),
        twice("attempt", job_id=JOB),
        change("job", of_job, claim_version=2),
        change("event", {**of_job, "type": "done"}, type="error"),
        change("job", of_job, result='{"claim": 2}'),
        change("attempt", of_job, outcome="lease_lost"),
        remove("returned", job=JOB),
    ],
    "G5 events without gaps and in order": [
        remove("event", job_id=JOB, seq=2),
        change("event", {**of_job, "seq": 2}, seq=1),
        change("job", of_job, event_seq=4),
        change("event", {**of_job, "seq": 1}, type="running"),
        change("event", {**of_job, "seq": 3}, type="progress"),
    ],
    "G6 progress and times never fall": [
        change("event", {**of_job, "seq": 3}, progress=40.0),
        change("event", {**of_job, "seq": 3}, ms=1),
        change("job", of_job, ended_at=1),
        change("attempt", of_job, ended_at=1),
        change("attempt", of_job, ended_at=None),
        change("job", of_job, progress=60.0),
    ],
    "G9 an outage spends no attempt": [
        change("attempt", of_job, outcome="retried"),
        change("attempt", of_job, outcome="dead_lettered"),
        change("job", of_job, attempt_count=2),
        change("attempt", of_job, outcome="released"),
    ],
    "one request, one job": [
        add({"fact": "acknowledged", "at": 9, "key": f"key of {JOB}", "job": LONE, "created": True}),
        add(*lived(job(f"{JOB[:-1]}8", "keyed", f"key of {LONE}")), end=True),
    ],
    "a canceled job stays canceled": [change("canceled", {"job": JOB}, state="canceled")],
    "follow-ups come with the success": [
        remove("job", kind="follow"),
        change("job", of_job, status="canceled"),
        lambda history: history.end.append({**row(history, "job", kind="follow"), "job_id": f"{JOB[:-1]}7"}),
    ],
    "a step that is done is not done again": [add(*STEPPED_TWICE), add(*STEPPED_TWICE[1:])],
    "S9 concurrency limits hold": [change("began", {"job": TWIN}, at=29)],
    "S4 one active job per unique key": [
        change("began", {"job": TWIN}, at=29),
        change("acknowledged", {"job": TWIN}, at=29),
    ],
    "a slot of a schedule fires at most once": [
        change("job", {"kind": "tick"}, correlation_id=f"schedule:each hour:{2 * HOUR_MS}"),
        change("job", {"kind": "tick"}, correlation_id="schedule:each hour:77"),
        change("scheduled", {}, key="each day"),
    ],
    "S5 dependencies block until they are met": [
        change("began", {"job": CHILD}, at=29),
        change("asked", {"key": f"key of {CHILD}"}, expects=["canceled"]),
        remove("attempt", job_id=JOB),
    ],
    "G4 callbacks are those of the outcome": [
        remove("callback", event_id=FIRST),
        remove("callback", event_id=SECOND),
        twice("callback", event_id=SECOND),
        change("attempt", {"job_id": FILM}, outcome="lease_lost"),
    ],
    "callbacks arrive, signed, and are what was written": [
        remove("received", event=FIRST, status=204),
        change("callback", {"event_id": FIRST}, status="dead_letter"),
        change("received", {"event": FIRST}, body="{}"),
        change("received", {"event": FIRST}, verified=False),
        add({"fact": "received", "at": 1, "event": "evt_other", "body": "{}", "verified": True, "status": 204}),
    ],
    "watchers see every event once, in order": [
        change("watched", {}, seen=[[1, "queued"], [3, "done"]]),
        change("watched", {}, seen=[[1, "queued"], [2, "checkpoint"], [2, "checkpoint"], [3, "done"]]),
        change("watched", {}, seen=[[1, "queued"], [3, "done"], [2, "checkpoint"]]),
    ],
    "no error but the ones that are documented": [
        add({"fact": "surprise", "at": 1, "what": "500"}),
        change("stored", {}, same=False),
    ],
    "nothing is left behind": [
        change("left", {}, workspaces=["work-local/x"]),
        change("left", {}, processes=[17]),
        change("left", {}, secrets=["server-0.log"]),
    ],
}  # fmt: skip
CASES = [pytest.param(name, each, id=f"{name} {n}") for name, some in BREAKS.items() for n, each in enumerate(some)]


def test_a_history_in_which_all_promises_are_kept_passes() -> None:
    assert check(good()) == []


@pytest.mark.parametrize(("name", "breaks"), CASES)
def test_a_broken_promise_is_seen(name: str, breaks: Break) -> None:
    history = good()
    breaks(history)
    assert name in {violation.rule for violation in check(history)}


def test_every_rule_has_a_history_that_breaks_it() -> None:
    check(good())
    assert set(BREAKS) == set(RULES)


def test_a_lost_attempt_that_goes_on_as_a_zombie_breaks_no_limit() -> None:
    history = good()
    row(history, "attempt", job_id=LONE)["outcome"] = "lease_lost"
    row(history, "began", job=TWIN)["at"] = 29
    assert "S9 concurrency limits hold" not in {violation.rule for violation in check(history)}


def test_a_failure_that_its_task_raised_spends_an_attempt() -> None:
    history = good()
    extra = {**row(history, "attempt", job_id=JOB), "claim_version": 0, "attempt": 0, "outcome": "retried"}
    history.end.append(extra)
    row(history, "job", job_id=JOB)["attempt_count"] = 2
    history.facts.append({"fact": "raised", "at": 1, "job": JOB, "claim": 0})
    assert check(history) == []


def test_a_history_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(writing.FOLDER, str(tmp_path))
    note("began", job=JOB, claim=1)
    append(tmp_path / "end.jsonl", [job(JOB, "count", "m")])
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"fact": "ret')  # a line whose writer is still at it
    read = History.read(tmp_path)
    assert [fact["job"] for fact in read.of("began")] == [JOB]
    assert list(read.jobs) == [JOB]
    assert len(read.facts) == 1
