"""Steps of the store's clock, forward and back, seen by processes that sweep. All times are virtual."""

from __future__ import annotations

import asyncio
import logging

import pytest

from callsheet.engine import Engine
from callsheet.engine.clock import DOUBT_MS, MARK_MS, SILENT_MS, Look, Mark, Step, boot_id, describe, read_mark, undone
from callsheet.engine.schedules import Schedule, put_schedule, schedules
from callsheet.kernel import commands
from callsheet.kernel.errors import StoreUnavailable
from callsheet.kernel.job import Status
from callsheet.store.protocol import JobQuery, Settled
from tests.engine.clocks import HOUR, Machine, stepping
from tests.store_driver import T0, new_job

HOURLY = Schedule("hourly", "0 * * * *", "report", queue="hourly")


@pytest.fixture
def machine(engine: Engine) -> Machine:
    return Machine(engine.store)


async def _slots(machine: Machine) -> list[str]:
    """The slots that have fired, by the hours since T0, in the order of their jobs."""
    page = await machine.store.find(JobQuery(queue="hourly"))
    return [job.correlation_id for job in reversed(page.jobs)]


def _slot(hours: int) -> str:
    return f"schedule:hourly:{T0 + hours * HOUR}"


async def test_a_step_forward_ends_no_living_attempt(machine: Machine) -> None:
    keeper = machine.keeper()
    job = await machine.running(new_job(max_attempts=1))
    await machine.sweep_for(keeper, 10_000)
    machine.step(6 * HOUR)
    assert [swept.reaped for swept in await machine.sweep_for(keeper, 5_000)] == [0] * 5
    (beat,) = await machine.store.heartbeat([job.claim], lease_ms=30_000)
    assert beat.held
    assert await machine.store.settle([commands.succeed(job)]) == [Settled.APPLIED]


async def test_a_step_between_the_look_and_the_reaping_ends_no_living_attempt(machine: Machine) -> None:
    keeper = machine.keeper()
    job = await machine.running(new_job(max_attempts=1))
    await machine.sweep_for(keeper, 10_000)

    async def step() -> None:
        machine.step(6 * HOUR)

    async with stepping(machine.store, "promote", step):
        assert (await keeper.sweep()).reaped == 0
    assert (await keeper.sweep()).reaped == 0
    assert await machine.store.settle([commands.succeed(job)]) == [Settled.APPLIED]


async def test_a_step_that_cannot_be_seen_to_stops_reaping_alone(machine: Machine) -> None:
    keeper = machine.keeper()
    await machine.running(new_job())
    await machine.sweep_for(keeper, 10_000)
    await machine.store.enqueue([new_job(queue="later", delay_ms=1_000)])
    machine.step(6 * HOUR)

    async def fail() -> None:
        raise StoreUnavailable("it takes too long")

    async with stepping(machine.store, "rebase", fail):
        swept = await keeper.sweep()
    assert (swept.promoted, swept.reaped) == (1, 0)


async def test_a_worker_that_died_before_a_step_forward_is_noticed_a_lease_later(machine: Machine) -> None:
    keeper = machine.keeper()
    await machine.running(new_job())
    await machine.sweep_for(keeper, 10_000)
    machine.step(6 * HOUR)
    assert sum(swept.reaped for swept in await machine.sweep_for(keeper, 19_000)) == 0
    assert sum(swept.reaped for swept in await machine.sweep_for(keeper, 3_000)) == 1


async def test_all_waits_go_on_after_a_step_back(machine: Machine) -> None:
    keeper = machine.keeper()
    await machine.sweep_for(keeper, 5_000)
    machine.step(6 * HOUR)
    await machine.sweep_for(keeper, 5_000)
    delayed_job = new_job(queue="d", delay_ms=20_000)
    await machine.store.enqueue([delayed_job])
    lost_job = await machine.running(new_job(queue="l"))
    await machine.sweep_for(keeper, 5_000)
    machine.step(-6 * HOUR)
    swept = await machine.sweep_for(keeper, 14_000)
    assert sum(s.promoted for s in swept) == 0
    swept = await machine.sweep_for(keeper, 2_000)
    assert sum(s.promoted for s in swept) == 1
    assert (await machine.claim("d")).job_id == delayed_job.job_id
    swept = await machine.sweep_for(keeper, 12_000)
    assert sum(s.reaped for s in swept) == 1
    events = [event.ms for event in await machine.store.events({lost_job.job_id: 0}, 100)]
    assert events == sorted(events)


async def test_a_clock_that_was_wrong_from_the_beginning_is_corrected(machine: Machine) -> None:
    keeper = machine.keeper()
    await machine.sweep_for(keeper, 2_000)
    old = new_job(delay_ms=3 * HOUR)
    await machine.store.enqueue([old])
    await machine.sweep_for(keeper, 2 * HOUR, each_ms=600_000)  # for longer than it then steps back
    machine.step(-HOUR)
    await machine.sweep_for(keeper, 1_000)
    assert (await machine.engine.get(old.job_id)).run_at == machine.now + HOUR - 1_000


async def test_what_was_written_before_the_clock_was_ahead_waits_for_its_own_time(machine: Machine) -> None:
    keeper = machine.keeper()
    before = new_job(delay_ms=24 * HOUR)
    await machine.store.enqueue([before])
    await machine.sweep_for(keeper, 2_000)
    machine.step(6 * HOUR)
    await machine.sweep_for(keeper, 2_000)
    machine.step(-6 * HOUR)
    await machine.sweep_for(keeper, 2_000)
    assert (await machine.engine.get(before.job_id)).run_at == T0 + 24 * HOUR


async def test_a_schedule_fires_each_slot_once_and_is_not_silent(machine: Machine) -> None:
    keeper = machine.keeper()
    await put_schedule(machine.store, HOURLY)
    await machine.sweep_for(keeper, 2_000)
    machine.step(6 * HOUR)
    await machine.sweep_for(keeper, 2_000)
    assert await _slots(machine) == [_slot(1)]  # six were missed: they fire as one
    await machine.sweep_for(keeper, HOUR, each_ms=600_000)
    assert await _slots(machine) == [_slot(1), _slot(7)]
    machine.step(-6 * HOUR)
    await machine.sweep_for(keeper, 2_000)
    assert [slot for _, slot in await schedules(machine.store)] == [T0 + 2 * HOUR]
    await machine.sweep_for(keeper, 7 * HOUR, each_ms=600_000)
    assert await _slots(machine) == [_slot(hours) for hours in (1, 7, 2, 3, 4, 5, 6, 8)]


async def test_a_schedule_that_was_made_while_the_clock_was_ahead_is_not_silent(machine: Machine) -> None:
    await put_schedule(machine.store, HOURLY, now=T0 + 100 * HOUR)
    await machine.sweep_for(machine.keeper("another"), 2 * HOUR, each_ms=600_000)
    assert await _slots(machine) == [_slot(1), _slot(2)]


@pytest.mark.parametrize("by_ms", [6 * HOUR, -6 * HOUR])
async def test_of_many_processes_one_moves_what_waits(machine: Machine, by_ms: int) -> None:
    keepers = [machine.keeper(f"machine{n % 2}") for n in range(4)]
    job, delayed_job = await machine.running(new_job()), new_job(delay_ms=60_000)
    await machine.store.enqueue([delayed_job])
    for _ in range(3):
        await asyncio.gather(*(keeper.sweep() for keeper in keepers))
        machine.pass_(1_000)
    machine.step(by_ms)
    for _ in range(3):
        assert [s.reaped for s in await asyncio.gather(*(keeper.sweep() for keeper in keepers))] == [0] * 4
    mark = await read_mark(machine.store)
    assert mark is not None
    assert [step.by_ms for step in mark.steps] == [by_ms]
    assert (await machine.engine.get(job.job_id)).lease_expires_at == machine.now + 27_000
    due = T0 + 60_000 if by_ms > 0 else machine.now + 57_000
    assert (await machine.engine.get(delayed_job.job_id)).run_at == due


async def test_a_process_that_begins_after_a_step_back_sees_it(machine: Machine) -> None:
    await machine.sweep_for(machine.keeper("first"), 2_000)
    delayed_job = new_job(delay_ms=60_000)
    await machine.store.enqueue([delayed_job])
    machine.step(-6 * HOUR)
    await machine.keeper("after the boot").sweep()
    assert (await machine.engine.get(delayed_job.job_id)).run_at <= machine.now + 60_000 + MARK_MS


async def test_a_process_of_the_same_machine_sees_a_step_forward_that_was_before_it(machine: Machine) -> None:
    await machine.keeper().sweep()
    job = await machine.running(new_job())
    machine.pass_(5_000)
    machine.step(6 * HOUR)
    assert (await machine.keeper().sweep()).reaped == 0
    assert (await machine.engine.get(job.job_id)).lease_expires_at == machine.now + 25_000


async def test_a_process_of_another_machine_waits_for_those_who_know_before_it_reaps(machine: Machine) -> None:
    keeper = machine.keeper()
    await keeper.sweep()
    job = await machine.running(new_job())
    machine.step(SILENT_MS + 1)
    other = machine.keeper("other")
    assert [swept.reaped for swept in await machine.sweep_for(other, 2_000)] == [0, 0]
    await keeper.sweep()  # it has seen the clock before
    assert [swept.reaped for swept in await machine.sweep_for(other, 2_000)] == [0, 0]
    assert (await machine.engine.get(job.job_id)).lease_expires_at == T0 + 30_000 + SILENT_MS + 1


async def test_a_process_reaps_what_those_left_who_are_gone(machine: Machine) -> None:
    await machine.keeper().sweep()
    await machine.running(new_job())
    machine.pass_(SILENT_MS + 1)
    swept = await machine.sweep_for(machine.keeper("other"), DOUBT_MS + 1_000)
    assert [s.reaped for s in swept] == [0, 0, 0, 0, 0, 1]


async def test_a_machine_that_slept_alone_moves_nothing_of_others(machine: Machine) -> None:
    laptop, server = machine.watch("laptop"), machine.keeper("server")
    await laptop.look()
    job = await machine.running(new_job())
    await machine.store.heartbeat([job.claim], lease_ms=30_000)
    await machine.sweep_for(server, 20_000)
    steady = machine.steady
    await machine.sweep_for(server, 2 * MARK_MS)  # while the laptop sleeps
    awake, machine.steady = machine.steady, steady
    await laptop.look()
    machine.steady = awake
    mark = await read_mark(machine.store)
    assert mark is not None
    assert mark.steps == ()


async def test_attempts_outlive_the_sleep_of_their_machine(machine: Machine) -> None:
    keeper = machine.keeper()
    job = await machine.running(new_job(max_attempts=1))
    await machine.sweep_for(keeper, 2_000)
    machine.sleep(8 * HOUR)
    assert [s.reaped for s in await machine.sweep_for(keeper, 2_000)] == [0, 0]
    assert (await machine.engine.get(job.job_id)).status is Status.RUNNING


async def test_time_that_passes_evenly_is_no_step(machine: Machine) -> None:
    keeper = machine.keeper()
    await keeper.sweep()
    job = await machine.running(new_job())
    machine.pass_(10 * 60_000)  # the process stood still: its machine did not
    assert (await keeper.sweep()).reaped == 1
    machine.step(4_000)
    await keeper.sweep()
    machine.step(-4_000)
    await keeper.sweep()
    mark = await read_mark(machine.store)
    assert mark is not None
    assert mark.steps == ()
    assert (await machine.engine.get(job.job_id)).status is Status.QUEUED


async def test_a_step_while_the_store_is_asked_slowly_is_no_step(machine: Machine) -> None:
    watch = machine.watch()
    await watch.look()

    async def stall() -> None:
        machine.pass_(60_000)

    async with stepping(machine.store, "now", stall):
        sight = await watch.look()
    machine.pass_(1_000)
    assert (sight.certain, (await watch.look()).ahead_ms) == (True, 0)


async def test_another_process_that_marks_at_the_same_moment_does_not_hide_a_step(machine: Machine) -> None:
    keeper, other = machine.keeper(), machine.watch("other")
    await other.look()
    await machine.running(new_job())
    await machine.sweep_for(keeper, 2_000)
    mark = await read_mark(machine.store)
    assert mark is not None

    async def note() -> None:  # of the time before the step
        before = mark._replace(look=Look(machine.now - 6 * HOUR, (0, 0)), boot="other")
        await machine.watch("third")._note(before, before.look)

    machine.step(6 * HOUR)
    async with stepping(machine.store, "rebase", note):
        assert (await keeper.sweep()).reaped == 0
    after = await read_mark(machine.store)
    assert after is not None
    assert [step.by_ms for step in after.steps] == [6 * HOUR]


async def test_ended_jobs_are_kept_for_a_day_though_the_clock_is_ahead(machine: Machine) -> None:
    keeper = machine.keeper(retention_ms=HOUR)
    job = await machine.running(new_job())
    await machine.store.settle([commands.succeed(job)])
    await machine.sweep_for(keeper, 2_000)
    machine.step(48 * HOUR)
    assert sum(s.pruned for s in await machine.sweep_for(keeper, 2_000)) == 0
    assert sum(s.pruned for s in await machine.sweep_for(keeper, 26 * HOUR, each_ms=600_000)) == 1


async def test_a_step_is_told_of(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    watch = machine.watch()
    await watch.look()
    await machine.store.enqueue([new_job(delay_ms=60_000)])
    machine.step(-6 * HOUR)
    with caplog.at_level(logging.WARNING, "callsheet.clock"):
        assert await watch.glance() == machine.now
    expected = "the store's clock stepped back by 6:00:00 to 2027-01-15T02:00:00+00:00; 1 waiting jobs, 0 leases and"
    assert caplog.text.count(expected) == 1


async def test_a_glance_reads_no_mark_until_the_clock_steps(machine: Machine) -> None:
    watch = machine.watch()
    await watch.glance()
    machine.pass_(10 * MARK_MS)
    await watch.glance()
    assert (await read_mark(machine.store) or Mark(Look(0, (0, 0)), "")).look.at == T0
    job = await machine.running(new_job())
    machine.step(6 * HOUR)
    assert await watch.glance() == machine.now
    assert (await machine.engine.get(job.job_id)).lease_expires_at == machine.now + 30_000


def test_a_step_back_undoes_steps_forward() -> None:
    first, second = Step(100_000_000, 3 * HOUR), Step(200_000_000, 6 * HOUR)
    assert undone((), HOUR) == (None, ())
    assert undone((first, second), 6 * HOUR) == (second.at, (first,))
    assert undone((first, second), 2 * HOUR) == (second.at, (first, second._replace(by_ms=4 * HOUR)))
    assert undone((first, second), 9 * HOUR) == (first.at, ())
    assert undone((first, second), 12 * HOUR) == (None, ())


def test_a_boot_has_a_name() -> None:
    assert boot_id() == boot_id()
    assert describe(Step(T0, 61_000)) == "forward by 0:01:01 to 2027-01-15T08:00:00+00:00"
