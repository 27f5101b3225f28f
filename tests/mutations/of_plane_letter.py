"""Guards of the worker control plane: cancellations, claims without an answer, starts, tokens and bursts."""

from __future__ import annotations

from tests.mutations.guard import LEASE, Guard

DUE = "tests/store_postgres/test_due.py"
IDENTITY = "tests/remote/test_identity.py"
PATIENCE = "tests/cli/test_patience.py"
KEEPING = "tests/engine/test_housekeeping.py"
SILENT = "tests/faults/test_silent_stores.py"
ENDING = "tests/remote/test_ending.py::test_a_worker_stops_though_its_server_does_not_answer"
SILENCE = f"{LEASE}::test_a_cancellation_leaves_a_lease_so_much_silence_and_no_more"
BEAT = f"{LEASE}::test_a_beat_of_a_job_that_is_to_be_cancelled_is_good_for_two_beats"
PLANE_LETTER = [
    Guard(
        "kernel",
        "steps are proved by their own claim",
        "worker/remote/plane.py",
        "lease = self.leases.get(job.claim)",
        "lease = next((lease for claim, lease in self.leases.items() if claim.job_id == job_id), None)",
        "tests/remote/test_plane.py",
    ),
    Guard(
        "sqlite",
        "a cancellation shortens the lease",
        "store/sqlite/queries.sql",
        "min(lease_expires_at, coalesce(heartbeat_at + ?20, lease_expires_at))",
        "coalesce(lease_expires_at, ?20)",
        SILENCE,
    ),
    Guard(
        "sqlite",
        "a beat of a cancelled job is good for two beats",
        "store/sqlite/queries.sql",
        "CASE WHEN cancel_requested_at IS NULL THEN ?3 ELSE ?5 END",
        "coalesce(?3, ?5)",
        BEAT,
    ),
    Guard(
        "postgres",
        "a cancellation shortens the lease",
        "store/postgres/queries.sql",
        "least(j.lease_expires_at, j.heartbeat_at + c.silence_ms)",
        "j.lease_expires_at",
        SILENCE,
    ),
    Guard(
        "postgres",
        "a beat of a cancelled job is good for two beats",
        "store/postgres/queries.sql",
        "CASE WHEN j.cancel_requested_at IS NULL THEN $4::bigint ELSE $5::bigint END",
        "coalesce($4::bigint, $5::bigint)",
        BEAT,
    ),
    Guard(
        "redis",
        "a cancellation shortens the lease",
        "store/redis/scripts/move.lua",
        "  lease_after(s, job)\n",
        "",
        SILENCE,
    ),
    Guard(
        "redis",
        "a beat of a cancelled job is good for two beats",
        "store/redis/scripts/heartbeat.lua",
        "job.cancel_requested_at and LAST or LEASE",
        "LEASE",
        BEAT,
    ),
    Guard(
        "sqlite",
        "a cancellation asks for two beats",
        "engine/engine.py",
        "silent_after_ms=silence_ms_of(job)",
        "silent_after_ms=None",
        f"{KEEPING}::test_a_cancelled_job_of_a_silent_worker_ends_after_two_beats",
    ),
    Guard(
        "sqlite",
        "asking twice takes no time away",
        "engine/silent_workers.py",
        "if job.cancel_requested_at is not None:",
        "if False:",
        f"{KEEPING}::test_a_cancelled_job_of_a_silent_worker_ends_after_two_beats",
    ),
    Guard(
        "sqlite",
        "an unconfirmed claim has not begun",
        "engine/silent_workers.py",
        "heard_at <= job.attempt_started_at",
        "heard_at < 0",
        f"{KEEPING}::test_a_claim_over_http_that_nothing_was_heard_of_has_not_begun",
    ),
    Guard(
        "sqlite",
        "a job that kills its workers is counted",
        "engine/silent_workers.py",
        "is not None and not was_lost_early(job)\n",
        "is not None\n",
        f"{KEEPING}::test_a_claim_over_http_that_nothing_was_heard_of_has_not_begun",
    ),
    Guard(
        "sqlite",
        "a heartbeat or a move confirms a claim",
        "engine/silent_workers.py",
        "heard_at = max(job.heartbeat_at or 0, job.event_ms)",
        "heard_at = 0",
        f"{KEEPING}::test_a_claim_that_was_confirmed_counts_when_it_is_lost",
    ),
    Guard(
        "kernel",
        "what no waiting mends is not waited for",
        "cli/open_store.py",
        "except StoreRefused:",
        "except ZeroDivisionError:",
        f"{PATIENCE}::test_what_no_waiting_mends_fails_at_once",
    ),
    Guard(
        "kernel",
        "a wrong user of PostgreSQL is known as such",
        "store/postgres/connection.py",
        "except asyncpg.InvalidAuthorizationSpecificationError as error:",
        "except ZeroDivisionError as error:",
        f"{PATIENCE}::test_what_no_waiting_mends_fails_at_once",
    ),
    Guard(
        "kernel",
        "a wrong password of Redis is known as such",
        "store/redis/client.py",
        "except REFUSALS as error:",
        "except ZeroDivisionError as error:",
        f"{PATIENCE}::test_what_no_waiting_mends_fails_at_once",
    ),
    Guard(
        "kernel",
        "a wait has an end",
        "cli/open_store.py",
        "if left_s <= 0:",
        "if left_s <= -1:",
        f"{PATIENCE}::test_who_is_not_to_wait_fails_at_once",
    ),
    Guard(
        "kernel",
        "a locked file is waited for",
        "store/sqlite/connection.py",
        "StoreRefused if any(words in str(error) for words in NO_DATABASE) else StoreUnavailable",
        "StoreRefused",
        f"{PATIENCE}::test_a_sqlite_file_that_somebody_locks_is_waited_for",
    ),
    Guard(
        "kernel",
        "a worker does not enrol in a loop",
        "worker/remote/credentials.py",
        "self.token.startswith(WORKER)) or too_soon:",
        "self.token.startswith(WORKER)):",
        f"{IDENTITY}::test_a_worker_whose_token_is_not_known_any_more_enrols_again_while_it_runs_and_not_in_a_loop",
    ),
    Guard(
        "kernel",
        "who was revoked on purpose may not enrol",
        "http/worker_registry.py",
        "is not None and not body.get(ON_PURPOSE)",
        "is not None",
        f"{IDENTITY}::test_a_worker_that_was_revoked_on_purpose_does_not_enrol_again",
    ),
    Guard(
        "kernel",
        "an enrolment does not take back who was revoked",
        "http/worker_registry.py",
        'await self._check_wanted(body["enrolment_id"])',
        "pass",
        f"{IDENTITY}::test_a_worker_that_was_revoked_on_purpose_does_not_enrol_again",
    ),
    Guard(
        "kernel",
        "a token that was given up is not read again",
        "worker/remote/credentials.py",
        "if stored_token.token in (self.token, self._given_up):",
        "if stored_token.token == self.token:",
        f"{IDENTITY}::test_a_worker_whose_token_is_not_known_any_more_enrols_again_while_it_runs_and_not_in_a_loop",
    ),
    Guard(
        "kernel",
        "a thorough claim asks for due jobs",
        "store/postgres/claim.py",
        "always = request.thorough or now is not None",
        "always = now is not None",
        f"{DUE}::test_a_thorough_claim_asks_for_due_jobs_in_any_case",
    ),
    *(
        Guard(
            store,
            "the last claim is not waited for without end",
            "worker/shift.py",
            "timeout=min(self._drain_left_s(), seconds(self._options.grace))",
            "timeout=None",
            f"{test} --timeout=20",
        )
        for store, test in (
            ("redis", f"{SILENT}::test_a_worker_stops_though_its_store_does_not_answer"),
            ("kernel", ENDING),
        )
    ),
    Guard(
        "redis",
        "the last claim is not waited for after a hard stop",
        "worker/shift.py",
        "asyncio.wait({claiming, hard}, ",
        "asyncio.wait({claiming}, ",
        f"{SILENT}::test_a_worker_stops_though_its_store_does_not_answer --timeout=20",
    ),
    Guard(
        "postgres",
        "the last sweep is not waited for without end",
        "engine/housekeeping.py",
        "timeout=LAST_SWEEP_S",
        "timeout=None",
        f"{SILENT}::test_a_worker_stops_though_its_store_does_not_answer --timeout=30",
    ),
    Guard(
        "kernel",
        "the last claim of a burst is thorough",
        "worker/shift.py",
        "thorough=burst and idle",
        "thorough=False",
        f"{DUE}::test_a_burst_does_not_end_beside_a_job_that_has_just_become_due",
    ),
    Guard(
        "kernel",
        "the last claim of a remote burst is thorough",
        "worker/remote/shift.py",
        "if thorough and not leased_jobs:",
        "if False:",
        f"{DUE}::test_nor_does_the_burst_of_a_remote_worker",
    ),
]
