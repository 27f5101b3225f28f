"""Guards of the promise that a step of the clock spends no attempt, ends no job and parks nothing."""

from __future__ import annotations

from .guard import CONFORMANCE, Guard

STEPS = f"{CONFORMANCE}/test_clock.py"
ENGINE = "tests/engine/test_clock.py"
RENEWED = f"{STEPS}::test_a_lease_that_was_renewed_since_the_step_stays"
MOMENT = f"{STEPS}::test_a_moment_that_was_asked_for_stays"
SINCE = f"{STEPS}::test_what_was_written_before_the_clock_was_ahead_stays"
ONCE = f"{STEPS}::test_of_many_that_see_a_step_one_moves"
UNDONE = f"{STEPS}::test_a_step_that_is_undone_before_the_next_beat_leaves_no_trace"
AHEAD = f"{STEPS}::test_leases_of_a_clock_that_was_ahead_end_with_their_time_left"

Change = tuple[str, str, str, str, int]


def of(store: str, file: str, *changes: Change) -> list[Guard]:
    """Guards of one file of a store: name, before, after, test and the number of occurrences."""
    return [Guard(store, name, file, before, after, test, times) for name, before, after, test, times in changes]


CLOCK = [
    *of(
        "sqlite",
        "store/sqlite/queries.sql",
        ("a renewed lease stays", "coalesce(heartbeat_at, 0) <= ?1", "?2 > ?3", RENEWED, 2),
        ("a lease of another clock ends", "coalesce(heartbeat_at, lease_expires_at) > ?2 + ?3", "?2 > ?2", AHEAD, 2),
        ("the beat moves with the lease", ", heartbeat_at = heartbeat_at + ?2 - ?1", "", UNDONE, 2),
        ("a moment stays", "c.name = '~run_at'", "c.name = '~'", MOMENT, 1),
        ("an older delay stays", "AND updated_at >= ?3 AND", "AND ?3 >= 0 AND", SINCE, 1),
    ),
    *of("sqlite", "store/sqlite/store.py", ("one moves", "            _put(db, mark)\n", "", ONCE, 1)),
    *of(
        "postgres",
        "store/postgres/queries.sql",
        ("a renewed lease stays", "coalesce(heartbeat_at, 0) <= $1::bigint", "$2::bigint > $3", RENEWED, 2),
        (
            "the beat moves with the lease",
            ",\n        heartbeat_at = j.heartbeat_at + $2::bigint - $1::bigint",
            "",
            UNDONE,
            1,
        ),
        ("a moment stays", "c.name = '~run_at'", "c.name = '~'", MOMENT, 1),
        ("an older delay stays", "AND j.updated_at >= $3::bigint AND", "AND $3::bigint >= 0 AND", SINCE, 1),
    ),
    *of("postgres", "store/postgres/store.py", ("one moves", "            await _put(session, mark)\n", "", ONCE, 1)),
    *of(
        "redis",
        "store/redis/scripts/rebase.lua",
        ("a renewed lease stays", "and (beat or 0) <= BEFORE", "", RENEWED, 1),
        ("a lease of another clock ends", "(beat or lease) > AFTER + TOLERANCE", "false", AHEAD, 1),
        ("the beat moves with the lease", "if beat then call('HSET'", "if false then call('HSET'", UNDONE, 1),
        ("a moment stays", "'~run_at') ~= run_at", "'~run_at') ~= 0", MOMENT, 1),
        ("an older delay stays", "written and written >= SINCE", "written", SINCE, 1),
        ("one moves", " == 0 then return {} end", " == -1 then return {} end", ONCE, 1),
    ),
    *of(
        "sqlite",
        "engine/housekeeping.py",
        (
            "the clock is looked at before leases are",
            "await self._look() if now is None else Sight(now)",
            "Sight(await store.now() if now is None else now)",
            f"{ENGINE}::test_a_step_forward_ends_no_living_attempt",
            1,
        ),
        (
            "who cannot tell does not reap",
            " if sight.certain else 0",
            "",
            f"{ENGINE}::test_a_process_of_another_machine_waits_for_those_who_know_before_it_reaps",
            1,
        ),
        (
            "a clock that is ahead prunes nothing",
            "sight.at - sight.ahead_ms",
            "sight.at",
            f"{ENGINE}::test_ended_jobs_are_kept_for_a_day_though_the_clock_is_ahead",
            1,
        ),
    ),
    *of(
        "sqlite",
        "engine/clock.py",
        (
            "a machine that slept is not the clock",
            "return mark.look.at <= interval[1] + TOLERANCE_MS",
            "return True",
            f"{ENGINE}::test_a_machine_that_slept_alone_moves_nothing_of_others",
            1,
        ),
        (
            "processes of a machine share its steady clock",
            "elif _is_of_boot(mark, self._boot, now):",
            "elif not mark.boot:",
            f"{ENGINE}::test_a_process_of_the_same_machine_sees_a_step_forward_that_was_before_it",
            1,
        ),
        (
            "who cannot tell writes no mark",
            "(certain and now.at - mark.look.at >= MARK_MS)",
            "(now.at - mark.look.at >= MARK_MS)",
            f"{ENGINE}::test_a_process_of_another_machine_waits_for_those_who_know_before_it_reaps",
            1,
        ),
        (
            "a slow answer is no step",
            "last.at + now.steady[1] - last.steady[0]",
            "last.at + now.steady[0] - last.steady[1]",
            f"{ENGINE}::test_a_step_while_the_store_is_asked_slowly_is_no_step",
            1,
        ),
        (
            "who loses a race looks again",
            "                continue\n",
            "                return Sight(now.at)\n",
            f"{ENGINE}::test_another_process_that_marks_at_the_same_moment_does_not_hide_a_step",
            1,
        ),
        (
            "a step back knows since when the clock was ahead",
            "return step.at, (",
            "return None, (",
            f"{ENGINE}::test_what_was_written_before_the_clock_was_ahead_waits_for_its_own_time",
            1,
        ),
    ),
    *of(
        "sqlite",
        "engine/schedules.py",
        (
            "a slot of a clock that was ahead is chosen anew",
            "or (state.next_slot > at and state.chosen_at <= at + TOLERANCE_MS):",
            "or state.next_slot > at:",
            f"{ENGINE}::test_a_schedule_fires_each_slot_once_and_is_not_silent",
            1,
        ),
    ),
    *of(
        "sqlite",
        "engine/operations.py",
        (
            "an operation of a clock that was ahead goes on",
            "elif operation.updated_at > now + TOLERANCE_MS:",
            "elif operation.updated_at > 2 * now:",
            "tests/http/test_dead_letters.py::test_an_operation_goes_on_after_a_clock_that_was_ahead",
            1,
        ),
    ),
    *of(
        "kernel",
        "outbox/deliver.py",
        (
            "a deliverer looks at the clock",
            "await self._clock.glance()",
            "await self._store.now()",
            "tests/outbox/test_deliver.py::test_a_step_forward_takes_no_delivery_from_a_living_deliverer",
            1,
        ),
        (
            "a step is no day of failures",
            "is_hopeless(now - self._clock.ahead_ms)",
            "is_hopeless(now)",
            "tests/outbox/test_deliver.py::test_a_clock_that_is_days_ahead_disables_no_endpoint",
            1,
        ),
    ),
    *of(
        "kernel",
        "outbox/breaker.py",
        (
            "a clock that was ahead opens no breaker for long",
            "not now < self.probe_at <= now + longest_ms",
            "not now < self.probe_at <= now + 10**12 + longest_ms",
            "tests/outbox/test_breaker.py::test_a_clock_that_was_ahead_does_not_keep_it_open",
            1,
        ),
    ),
    *of(
        "kernel",
        "outbox/breaker.py",
        (
            "a clock that steps back hides no trouble",
            "if 0 <= now - self._read_at < REFRESH_MS:",
            "if now - self._read_at < REFRESH_MS:",
            "tests/outbox/test_breaker.py::test_a_clock_that_steps_back_does_not_hide_what_others_note",
            1,
        ),
    ),
    *of(
        "kernel",
        "http/sessions.py",
        (
            "a session lives no longer than a life",
            " <= now + round(life_s * 1000) + TOLERANCE_MS",
            "",
            "tests/http/test_sessions.py::test_a_session_of_a_clock_that_was_ahead_is_over",
            1,
        ),
    ),
    *of(
        "sqlite",
        "engine/housekeeping.py",
        (
            "a lease that ended after the look is not reaped",
            "if (job.lease_expires_at or 0) <= seen_at + TOLERANCE_MS]",
            "if seen_at]",
            "tests/engine/test_clock.py::test_a_step_between_the_look_and_the_reaping_ends_no_living_attempt",
            1,
        ),
    ),
]
