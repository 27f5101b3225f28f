from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.kernel import commands, new_jobs, wire
from callsheet.kernel.apply import progress_after, timeline_faults
from callsheet.kernel.contracts import AURA, lifecycle_of
from callsheet.kernel.errors import (
    CallsheetError,
    DependencyCycle,
    DuplicateJob,
    IllegalMove,
    InvalidInput,
    InvalidJob,
    NotJson,
    PayloadTooLarge,
)
from callsheet.kernel.job import Idempotency, OnDependencyFailure, Status
from callsheet.kernel.retry import JobError
from callsheet.kernel.workers import worker_identity
from tests.kernel.jobs import NOW, a_job
from tests.store_driver import new_job


@given(st.lists(st.floats(allow_nan=False), max_size=30))
def test_progress_only_rises_and_stays_within_bounds(reports: list[float]) -> None:
    values = list(itertools.accumulate(reports, progress_after, initial=0.0))
    assert values == sorted(values)
    assert all(0 <= value <= 100 for value in values)


def test_progress_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInput):
        progress_after(0, float("nan"))


@pytest.mark.parametrize(
    ("phase", "low", "high", "stages"),
    [
        ("plan", 0, 15, "Initialization Queued Script Planning Brief"),
        ("tts", 15, 35, "TTS Audio Voice"),
        ("visuals", 35, 65, "Visuals Images Assets"),
        ("compose", 65, 85, "Composition Timeline Compose"),
        ("render", 85, 100, "Rendering Render Encode"),
        ("complete", 100, 100, "Complete Done"),
        ("processing", None, None, "Unknown anything-else"),
    ],
)
def test_stages_belong_to_phases(phase: str, low: int | None, high: int | None, stages: str) -> None:
    for stage in stages.split():
        for spelling in (stage, stage.lower(), stage.upper()):
            assert AURA.phase_of(spelling) == (phase, low, high)


def test_nineteen_stage_names_are_known() -> None:
    assert len(AURA.phase_by_stage) == 19


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({}, 0),
        ({"started_at": NOW - 1}, 1),
        ({"ended_at": NOW}, 1),
        ({"lease_expires_at": None}, 1),
        ({"updated_at": NOW - 1}, 1),
        ({"status": Status.SUCCEEDED}, 1),
        ({"status": Status.SUCCEEDED, "ended_at": NOW - 1}, 1),
    ],
)
def test_timeline_faults_are_found(changes: dict[str, Any], faults: int) -> None:
    assert len(timeline_faults(a_job()._replace(**changes))) == faults


def test_a_worker_is_named_by_pod_then_host_then_boot() -> None:
    assert worker_identity({"POD_NAME": "p", "HOSTNAME": "h"}, "u") == "p"
    assert worker_identity({"POD_NAME": " ", "HOSTNAME": "h"}, "u") == "h"
    assert worker_identity({}, "u1") == "u1"
    assert worker_identity({}, "u2") == "u2"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_json_survives_the_wire(value: Any) -> None:
    assert wire.decode(wire.encode(value)) == value


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), float("nan"), float("inf"), {"a": {3}}, "\ud800"])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(NotJson):
        wire.encode(value)


def test_a_value_nested_too_deep_is_refused() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotJson):
        wire.encode(value)


def test_a_payload_is_measured_in_bytes() -> None:
    assert wire.encode("é" * 10, limit_bytes=22)
    with pytest.raises(PayloadTooLarge, match="object store"):
        wire.encode("é" * 10, limit_bytes=21)
    assert wire.encode("x" * (200 * 1024 - 2))
    with pytest.raises(PayloadTooLarge):
        wire.encode("x" * (200 * 1024 - 1))


@given(st.integers(0, 2**60), st.integers(0, 2**40))
def test_event_ids_survive_their_text(ms: int, seq: int) -> None:
    assert wire.parse_event_id(wire.event_id(ms, seq)) == (ms, seq)


@given(st.text(max_size=50).filter(lambda t: not t.replace("-", "").isascii() or not t.replace("-", "").isdigit()))
def test_other_texts_are_no_event_ids(text: str) -> None:
    with pytest.raises(InvalidInput):
        wire.parse_event_id(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"job_id": "not-a-uuid"},
        {"job_id": "00000000-0000-4000-8000-00000000000A"},
        {"kind": ""},
        {"kind": "k" * 256},
        {"queue": ""},
        {"queue": "a\nb"},
        {"priority": 40_000},
        {"delay_ms": -1},
        {"run_at": -5},
        {"run_at": 5, "delay_ms": 5},
        {"max_attempts": 0},
        {"ttl_s": 0},
        {"ttl_s": 10**16},
        {"idempotency": Idempotency("k", "h", ttl_s=0)},
        {"concurrency_key": "k", "concurrency_limit": 0},
        {"unique_key": ""},
        {"concurrency_key": ""},
        {"unique_key": "nul\0"},
        {"concurrency_key": "k" * 256},
        {"requester_id": "a\ud800"},
        {"correlation_id": "x\n"},
        {"idempotency": Idempotency("k\0", "h")},
        {"contract": "no-such"},
        {"retry": "no-such"},
    ],
)
def test_a_bad_job_is_refused_with_advice(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob) as excinfo:
        new_jobs.check_batch([new_job(**fields)])
    assert len(str(excinfo.value)) > 20


def test_a_contract_that_cannot_cancel_a_queued_job_needs_another_policy() -> None:
    parent = new_job().job_id
    for contract in ("euterpe", "cortana"):
        with pytest.raises(InvalidJob, match="on_dependency_failure"):
            new_jobs.enqueue(new_job(contract=contract, depends_on=(parent,)))
        new_jobs.enqueue(
            new_job(contract=contract, depends_on=(parent,), on_dependency_failure=OnDependencyFailure.RUN)
        )


def test_circles_of_dependencies_are_refused() -> None:
    a, b, c = new_job(), new_job(), new_job()
    ring = [n._replace(depends_on=(m.job_id,)) for n, m in zip((a, b, c), (b, c, a), strict=True)]
    with pytest.raises(DependencyCycle, match=a.job_id):
        new_jobs.check_batch(ring)
    with pytest.raises(DependencyCycle):
        new_jobs.check_batch([a._replace(depends_on=(a.job_id,))])
    new_jobs.check_batch([a, b._replace(depends_on=(a.job_id,)), c._replace(depends_on=(a.job_id, b.job_id))])


def test_one_batch_cannot_use_an_id_twice() -> None:
    new = new_job()
    with pytest.raises(DuplicateJob, match="twice"):
        new_jobs.check_batch([new, new._replace(unique_key="u")])


def test_one_batch_cannot_use_an_idempotency_key_twice() -> None:
    key = Idempotency("k", "h")
    with pytest.raises(InvalidJob, match="twice"):
        new_jobs.check_batch([new_job(idempotency=key), new_job(idempotency=key)])
    new_jobs.check_batch([new_job(idempotency=key), new_job(idempotency=key, requester_id="other")])


@pytest.mark.parametrize(
    ("payload", "error"),
    [("nonsense", NotJson), ("", NotJson), ("NaN", NotJson), ('{"a":Infinity}', NotJson), ("[" * 100_000, NotJson),
     ('"\ud800"', NotJson), ('"' + "x" * 300_000 + '"', PayloadTooLarge), ('"' + "é" * 150_000 + '"', PayloadTooLarge)],
)  # fmt: skip
def test_a_payload_must_be_json_text_within_the_limit(payload: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        new_jobs.check_batch([new_job(), new_job(payload=payload)])


def test_the_payload_limit_can_be_set() -> None:
    new = new_job(payload='"12345678"')
    new_jobs.check_batch([new], payload_limit_bytes=10)
    with pytest.raises(PayloadTooLarge):
        new_jobs.check_batch([new], payload_limit_bytes=9)


def test_an_errors_message_is_kept_whatever_is_in_it() -> None:
    text = JobError("x", "nul \0 surrogate \ud800 " + "long " * 100_000).json()
    assert len(text) < 5_000
    assert "\0" not in wire.decode(text)["message"]
    text.encode()
    assert commands.cancel(a_job(), "nul \0 \ud800").cancel_reason == "nul \ufffd ?"


def test_follow_ups_are_checked_like_any_new_job() -> None:
    with pytest.raises(InvalidJob):
        commands.succeed(a_job(), follow_ups=(new_job(queue=""),))


def test_every_error_has_a_code_of_its_own() -> None:
    by_name: dict[str, type[CallsheetError]] = {}
    kinds = [CallsheetError]
    while kinds:
        kind = kinds.pop()
        assert by_name.setdefault(kind.code, kind) is kind
        kinds += [name for name in kind.__subclasses__() if name.__module__ == CallsheetError.__module__]
    assert len(by_name) == 30


def test_a_stage_without_a_name_is_refused() -> None:
    with pytest.raises(IllegalMove):
        commands.advance(a_job(), "")


def test_a_requeue_gives_a_fresh_budget_only_when_it_is_spent() -> None:
    dead = a_job(Status.DEAD_LETTER, attempt_count=3, max_attempts=3)
    assert commands.requeue(dead).fresh_attempts == 3
    assert commands.requeue(dead._replace(attempt_count=1)).fresh_attempts == 0


def test_an_unknown_contract_names_the_known_ones() -> None:
    with pytest.raises(InvalidJob, match="euterpe"):
        lifecycle_of("nobody")
