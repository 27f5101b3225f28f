"""The same commands go to every store and to the pure model; after every step all stores must agree.

`CALLSHEET_DEEP=1` runs thousands of sequences; hypothesis prints a failing run as a replayable program.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from operator import methodcaller
from typing import Any, ClassVar

import hypothesis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from callsheet.kernel import commands, new_jobs
from callsheet.kernel.apply import timeline_faults
from callsheet.kernel.errors import CallsheetError, IllegalMove
from callsheet.kernel.job import (
    Credentials,
    Delivery,
    Envelope,
    Idempotency,
    Job,
    NewEvent,
    NewJob,
    NewOutboxEvent,
    OnDependencyFailure,
)
from callsheet.kernel.retry import JobError
from callsheet.kernel.settlement import OutboxSettlement, Settlement
from callsheet.store.clock import ClockStep
from callsheet.store.protocol import ClaimRequest, Document, JobQuery, Store
from tests import stores
from tests.differential.model import Model
from tests.store_driver import T0

DEEP = "CALLSHEET_DEEP" in os.environ
SEQUENCES = int(os.environ.get("CALLSHEET_SEQUENCES", "2500" if DEEP else "60"))
STEPS = 30
KINDS = tuple(os.environ.get("CALLSHEET_KINDS", ",".join(stores.THREE)).split(","))

rare = st.sampled_from([False, False, False, True])
queues = st.sampled_from(["a", "b"])
keks = st.sampled_from(["k1", "k2"])
requesters = st.sampled_from(["", "acme"])


@st.composite
def specs(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """What a new job asks for; numbers refer to other jobs and are resolved during creation."""
    spec: dict[str, Any] = {"queue": draw(queues), "priority": draw(st.sampled_from([0, 0, 0, 5, -1]))}
    if draw(rare):
        spec["delay_ms"] = draw(st.sampled_from([1, 500, 2_000]))
    if draw(rare):
        spec["unique_key"] = draw(st.sampled_from(["u1", "u2"]))
    if draw(rare):
        spec["concurrency_key"] = draw(st.sampled_from(["k1", "k2"]))
        spec["concurrency_limit"] = draw(st.sampled_from([1, 1, 2]))
    if draw(rare):
        spec["idempotency"] = Idempotency(
            draw(st.sampled_from(["i1", "i2"])), draw(st.sampled_from(["h1", "h1", "h2"])), "[1]", ttl_s=2
        )
    if draw(rare):
        spec["depends_on"] = draw(st.lists(st.integers(0, 30), min_size=1, max_size=3))
        spec["on_dependency_failure"] = draw(st.sampled_from(OnDependencyFailure))
    if draw(rare):
        spec["contract"] = draw(st.sampled_from(["euterpe", "aura", "cortana", "redis_gateway", "control_plane"]))
    if draw(rare):
        spec["same_id_as"] = draw(st.integers(0, 30))
    if draw(rare):
        spec["credentials"] = Envelope(1, "YQ==", "Yg==", draw(keks), 1)
    if draw(rare):
        spec["resumed_from"] = f"00000000-0000-4000-8000-{draw(st.integers(0, 30)):012x}"
    spec["run_at"] = draw(st.sampled_from([None, None, None, None, T0, T0 + 1_000, T0 + 3_600_000]))
    spec["max_attempts"] = draw(st.sampled_from([1, 2, 3, None]))
    spec["ttl_s"] = draw(st.sampled_from([None, None, 3]))
    spec["requester_id"] = draw(requesters)
    return spec


class Machine(RuleBasedStateMachine):
    """Drives the model and the stores side by side."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    real: ClassVar[dict[str, Store]]
    clean: ClassVar[Callable[[], None]]
    sequences: ClassVar[int] = 0
    steps: ClassVar[int] = 0

    @initialize()
    def begin(self) -> None:
        type(self).clean()
        type(self).sequences += 1
        self.model = Model()
        self.now = T0
        self.ids: list[str] = []
        self.seen: list[Job] = []
        self.callbacks: list[tuple[str, int]] = []

    # --- commands

    @rule(batch=st.lists(specs(), min_size=1, max_size=4))
    def enqueue(self, batch: list[dict[str, Any]]) -> None:
        made = [self.make(spec, n) for n, spec in enumerate(batch)]
        try:
            new_jobs.check_batch(made)
        except CallsheetError:
            return
        self.ids += [new.job_id for new in made if new.job_id not in self.ids]
        self.both("enqueue", made)

    @rule(
        worker=st.sampled_from(["w1", "w2"]),
        wanted=st.lists(queues, min_size=1, max_size=2),
        limit=st.integers(1, 4),
        lease_ms=st.sampled_from([500, 5_000]),
        start=st.sampled_from([True, True, False]),
        tenants=st.sampled_from([None, None, frozenset({"acme"}), frozenset({""}), frozenset({"acme", "", "x"})]),
    )
    def claim(self, worker: str, wanted: list[str], limit: int, **more: Any) -> None:
        jobs = self.both("claim", ClaimRequest(worker, tuple(wanted), limit, **more))
        self.seen += jobs or []

    @precondition(lambda self: self.model.state.credentials)
    @rule(choice=st.integers(0, 30), kek_id=keks, newer=st.booleans(), late=rare)
    def replace_credentials(self, choice: int, kek_id: str, newer: bool, late: bool) -> None:  # noqa: FBT001
        kept = list(self.model.state.credentials.values())
        was = kept[choice % len(kept)]
        wrapped_key = f"{len(self.seen)}{choice:02}{int(newer)}"
        version = was.envelope.credential_version + int(newer)
        becomes = Credentials(was.job_id, was.requester_id, Envelope(version, "Yw==", wrapped_key, kek_id, 1))
        stale = was._replace(envelope=was.envelope._replace(credential_version=99))
        self.both("replace_credentials", [(stale if late else was, becomes)], is_timed=False)

    @rule(ms=st.sampled_from([0, 1, 400, 1_500, 6_000]))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule(ms=st.sampled_from([5, 700]))
    def step_the_clock_back(self, ms: int) -> None:
        self.now -= ms

    @rule(
        ms=st.sampled_from([-7_200_000, -20_000, 20_000, 7_200_000]),
        since_ms=st.sampled_from([None, 0, 500]),
        late=rare,
    )
    def rebase(self, ms: int, since_ms: int | None, late: bool) -> None:  # noqa: FBT001
        before, self.now = self.now, self.now + ms
        since = None if since_ms is None else before - since_ms
        mark = Document("clock", "store", "{}", self.model.state.marks + int(late))
        self.both("rebase", ClockStep(before, self.now, since), mark, is_timed=False)

    @precondition(lambda self: self.seen)
    @rule(picks=st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True))
    def heartbeat(self, picks: list[int]) -> None:
        claims = list({self.seen[p % len(self.seen)].claim for p in picks})
        self.both("heartbeat", sorted(claims), lease_ms=5_000)

    @precondition(lambda self: self.ids)
    @rule(
        moves=st.lists(
            st.tuples(st.integers(0, 50), st.sampled_from(sorted(COMMANDS := {
                "start", "advance", "progress", "checkpoint", "note", "refresh", "succeed", "succeed_with_more",
                "fail", "fail_for_good", "retry", "release", "lose_lease", "lose_early", "cancel", "request_cancel",
                "requeue",
            })), rare),
            min_size=1,
            max_size=3,
        )
    )  # fmt: skip
    def command(self, moves: list[tuple[int, str, bool]]) -> None:
        settlements = []
        for pick, name, old in moves:
            job = self.snapshot_to_act_on(pick, old=old)
            if job is None:
                continue
            try:
                settlements.append(self.decide(name, job, pick))
            except IllegalMove:
                continue
        if settlements:
            self.both("settle", settlements)

    @rule()
    def reap(self) -> None:
        expired_job = self.both("with_expired_lease", 10)
        self.both("settle", [commands.lose_lease(job, rand=0.5) for job in expired_job])
        broken_job = self.both("with_failed_dependency", 10, is_timed=False)
        self.both("settle", [commands.cancel(job, "broken") for job in broken_job])

    @rule()
    def promote(self) -> None:
        self.both("promote")

    @rule(age_ms=st.sampled_from([0, 1_000, 10_000]), limit=st.sampled_from([1, 100]))
    def prune(self, age_ms: int, limit: int) -> None:
        self.both("prune", ended_before=self.now - age_ms, limit=limit)

    @rule(queue=queues, is_paused=st.booleans())
    def pause(self, queue: str, is_paused: bool) -> None:  # noqa: FBT001
        (self.model.state.paused.add if is_paused else self.model.state.paused.discard)(queue)
        self.run(lambda store: store.pause(queue, paused=is_paused))

    @rule(limit=st.integers(1, 3))
    def outbox_claim(self, limit: int) -> None:
        rows = self.both("outbox_claim", "d1", limit=limit, lease_ms=1_000)
        self.callbacks += [(row.event_id, row.claim_version) for row in rows]

    @precondition(lambda self: self.callbacks)
    @rule(pick=st.integers(0, 20), status=st.sampled_from([Delivery.PENDING, Delivery.DELIVERED, Delivery.DEAD_LETTER]))
    def outbox_settle(self, pick: int, status: Delivery) -> None:
        event_id, version = self.callbacks[pick % len(self.callbacks)]
        self.both("outbox_settle", [OutboxSettlement(event_id, version, status, delay_ms=300, error='"e"')])

    # --- how

    def make(self, spec: dict[str, Any], n: int) -> NewJob:
        spec = dict(spec)
        fresh = f"00000000-0000-4000-8000-{len(self.ids) + n:012x}"
        if (same := spec.pop("same_id_as", None)) is not None and self.ids:
            fresh = self.ids[same % len(self.ids)]
        spec["depends_on"] = tuple(
            f"00000000-0000-4000-8000-{number % (len(self.ids) + 2):012x}" for number in spec.pop("depends_on", ())
        )
        return NewJob(job_id=fresh, kind="work", payload=f'{{"n":{n}}}', **spec)

    def snapshot_to_act_on(self, pick: int, *, old: bool) -> Job | None:
        """Return a job's current state, or its state at some claim."""
        if old and self.seen:
            return self.seen[pick % len(self.seen)]
        return self.model.state.jobs.get(self.ids[pick % len(self.ids)])

    def decide(self, name: str, job: Job, n: int) -> Settlement:
        error = JobError(("500", "429", "401", "fatal")[n % 4], "it broke")
        out = (NewOutboxEvent(f"e{len(self.model.state.outbox)}-{self.now}-{n}-{job.job_id}", "https://h", f"b{n}"),)
        follow = (NewJob(self.make({}, 0).job_id, "next", queue="b"),)
        table: dict[str, Callable[[], Settlement]] = {
            "start": lambda: commands.start(job),
            "advance": lambda: commands.advance(job, ("fetching", "processing", "uploading")[n % 3]),
            "progress": lambda: commands.progress(job, n * 2.35),
            "checkpoint": lambda: commands.checkpoint(job, f"c{n % 2}", str(n)),
            "note": lambda: commands.note(job, NewEvent("log", "x", f'{{"n":{n}}}')),
            "refresh": lambda: commands.refresh(job),
            "succeed": lambda: commands.succeed(job, str(n)),
            "succeed_with_more": lambda: commands.succeed(job, str(n), outbox=out, follow_ups=follow),
            "fail": lambda: commands.fail(job, error, rand=0.25),
            "fail_for_good": lambda: commands.fail(job, JobError("fatal"), rand=0, outbox=out),
            "retry": lambda: commands.retry(job, error, delay_ms=(n % 3) * 400),
            "release": lambda: commands.release(job, delay_ms=(n % 2) * 300),
            "lose_lease": lambda: commands.lose_lease(job, rand=0.5),
            "lose_early": lambda: commands.lose_lease(job, rand=0.5, has_begun=False),
            "cancel": lambda: commands.cancel(job, "no"),
            "request_cancel": lambda: commands.request_cancel(job, "please", silent_after_ms=(None, 400, 9_000)[n % 3]),
            "requeue": lambda: commands.requeue(job),
        }
        settlement = table[name]()
        if settlement.follow_ups:
            self.ids += [f.job_id for f in settlement.follow_ups if f.job_id not in self.ids]
        return settlement

    def both(self, name: str, *args: Any, is_timed: bool = True, **more: Any) -> Any:
        """Ask the model and every store the same, and compare the answers and then the jobs."""
        if is_timed:
            more["now"] = self.now
        try:
            expected: Any = getattr(self.model, name)(*args, **more)
        except CallsheetError as error:
            expected = type(error)
        answers = self.run(lambda store: getattr(store, name)(*args, **more))
        for kind, answer in answers.items():
            assert answer == expected, f"{name}: {kind} says {answer}, the model {expected}"
        self.compare_jobs()
        return [] if inspect.isclass(expected) else expected

    def run(self, ask: Callable[[Store], Any]) -> dict[str, Any]:
        async def one(store: Store) -> Any:
            try:
                return await ask(store)
            except CallsheetError as error:
                return type(error)

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(one(store) for store in self.real.values()))

        type(self).steps += 1
        return dict(zip(self.real, self.loop.run_until_complete(all_of_them()), strict=True))

    def compare_jobs(self) -> None:
        expected = self.model.get(self.ids)
        for kind, jobs in self.run(lambda store: store.get(self.ids)).items():
            for mine, theirs in zip(expected, jobs, strict=True):
                if mine != theirs:
                    differ = [
                        (f, a, b)
                        for f, a, b in zip(Job._fields, mine or [None] * 99, theirs or [None] * 99, strict=False)
                        if a != b
                    ]
                    pytest.fail(f"{kind} differs from the model in (field, model, store): {differ}")
        assert [fault for job in expected if job for fault in timeline_faults(job)] == []

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        cursors = dict.fromkeys(self.ids, 0)
        checks: dict[str, tuple[Any, Callable[[Store], Any]]] = {
            "counts": (self.model.counts(), lambda s: s.counts()),
            "events": (self.model.events(cursors, 500), lambda s: s.events(cursors, 500)),
            "outbox": (list(self.model.state.outbox.values()), lambda s: s.outbox_find(limit=500)),
            "find": (
                list(reversed([j for j in self.model.state.jobs.values() if j.requester_id == "acme"])),
                lambda s: jobs_of(s, JobQuery(requester_id="acme", limit=500)),
            ),
        }
        checks["credentials"] = self.model.credentials(self.ids), methodcaller("credentials", self.ids)
        checks["KEKs"] = self.model.credential_keks(), methodcaller("credential_keks")
        kept = self.model.state.checkpoints
        for job_id in self.ids:
            checks[f"attempts of {job_id}"] = self.model.attempt_list(job_id), methodcaller("attempts", job_id)
            checks[f"checkpoints of {job_id}"] = kept.get(job_id, {}), methodcaller("checkpoints", job_id)
        for key in ("i1", "i2"):
            expected = self.model.idempotency_record("acme", key, now=self.now)
            checks[f"key {key}"] = expected, methodcaller("idempotency_record", "acme", key, now=self.now)
        for what, (expected, ask) in checks.items():
            for kind, outcome in self.run(ask).items():
                assert outcome == expected, f"{what}: {kind} says {outcome}, the model {expected}"


async def jobs_of(store: Store, query: JobQuery) -> list[Job]:
    return (await store.find(query)).jobs


@pytest.mark.timeout(0 if DEEP else 300)
def test_all_stores_do_as_the_model_does(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.new_event_loop()
    real = {kind: loop.run_until_complete(stores.open_store(stores.fresh_url(kind))) for kind in KINDS}
    monkeypatch.setattr(Machine, "loop", loop, raising=False)
    monkeypatch.setattr(Machine, "real", real, raising=False)
    monkeypatch.setattr(Machine, "clean", lambda: loop.run_until_complete(stores.empty(real)), raising=False)
    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=SEQUENCES,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
                phases=[p for p in hypothesis.Phase if p is not hypothesis.Phase.explain],
            ),
        )
    finally:
        print(f"{Machine.sequences} sequences, {Machine.steps} calls to each of {', '.join(KINDS)}")  # noqa: T201
        for store in real.values():
            loop.run_until_complete(store.close())
        loop.close()
