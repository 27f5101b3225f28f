"""Guards of contract 000 to the letter: reported states, replays, and slot shares."""

from __future__ import annotations

from tests.mutations.guard import Guard

MADE_BY = {"sqlite": "0006_euterpe.sql", "postgres": "0007_euterpe.sql"}
VIEWS = "tests/store_sqlite/test_views.py"
CALLBACKS = "tests/contracts/euterpe/test_callbacks.py"
LETTER_EUTERPE_STATES = [
    Guard(
        "kernel",
        "euterpe states, a failure is told before where it leads",
        "kernel/callbacks.py",
        "if _goes_through_failed(lifecycle, settlement):",
        "if False:",
        f"{CALLBACKS}::test_the_failed_state_is_told_before_a_retry_and_before_a_dead_letter",
    ),
    Guard(
        "kernel",
        "euterpe states, a fatal error on the last attempt is a dead letter",
        "kernel/commands.py",
        "ends_as = Status.DEAD_LETTER if is_spent else Status.FAILED",
        "ends_as = Status.FAILED",
        f"{CALLBACKS}::test_a_fatal_error_on_the_last_attempt_is_a_dead_letter",
    ),
    *(
        Guard(
            store,
            f"euterpe states, the view {name}",
            f"store/{store}/migrations/{MADE_BY[store]}",
            before,
            after,
            f"{VIEWS}::test_transcoding_jobs_have_a_view_in_the_words_of_contract_000",
        )
        for store in ("sqlite", "postgres")
        for name, before, after in (
            (
                "says claimed",
                "WHEN j.stage = '' THEN 'claimed' ELSE j.stage END AS status",
                "ELSE j.stage END AS status",
            ),
            (
                "says stages alone of what runs",
                "CASE WHEN j.status <> 'running' THEN j.status WHEN j.stage",
                "CASE WHEN j.stage",
            ),
            ("has jobs of its contract alone", "\nWHERE j.contract = 'euterpe';", ";"),
        )
    ),
    *(
        Guard(
            store,
            "euterpe states, the view hides what follows a worker's name",
            f"store/{store}/migrations/{MADE_BY[store]}",
            before,
            "j.worker_id AS worker_id",
            f"{VIEWS}::test_transcoding_jobs_have_a_view_in_the_words_of_contract_000",
        )
        for store, before in (
            ("sqlite", "substr(j.worker_id, 1, instr(j.worker_id || '~', '~') - 1) AS worker_id"),
            ("postgres", "split_part(j.worker_id, '~', 1) AS worker_id"),
        )
    ),
]
