"""Guards of the promise that an outage spends no attempt and ends no job."""

from __future__ import annotations

from tests.mutations.guard import Guard

WORKER = "tests/worker/test_outages.py"
UNHEARD = "tests/worker/test_unheard_claims.py"
OUTAGES = [
    Guard(
        "worker",
        "an outage is no failure",
        "worker/execute.py",
        "if (outage := outage_of(error)) is not None:",
        "if (outage := outage_of(error)) is not None and False:",
        f"{WORKER}::test_a_task_that_meets_an_outage_waits_and_spends_no_attempt",
    ),
    Guard(
        "worker",
        "a full disk is an outage",
        "worker/outages.py",
        "if is_disk_full(error):",
        "if False:",
        f"{WORKER}::test_which_errors_are_outages",
    ),
    Guard(
        "worker",
        "an outage keeps its kind on its way out of a child",
        "worker/child.py",
        "if (outage := outage_of(error)) is not None:",
        "if (outage := outage_of(error)) is not None and False:",
        f"{WORKER}::test_a_full_disk_is_waited_for",
    ),
    Guard(
        "worker",
        "a worker on a full disk claims nothing",
        "worker/shift.py",
        "if self.disk.is_full():",
        "if False:",
        f"{WORKER}::test_a_worker_on_a_full_disk_claims_nothing_and_goes_on_when_there_is_room",
    ),
    Guard(
        "kernel",
        "patience with an outage has an end",
        "kernel/commands.py",
        "if waited_ms >= policy_of(job).outage_ms:",
        "if False:",
        "tests/kernel/test_waits.py::test_a_policy_says_how_long_is_waited",
    ),
    Guard(
        "kernel",
        "our storage that does not answer is waited for",
        "contracts/euterpe/tasks.py",
        "if (outage := outage_of(error)) is not None:",
        "if (outage := outage_of(error)) is not None and False:",
        "tests/contracts/euterpe/test_outages.py::test_a_requesters_storage_that_does_not_answer_is_waited_for_and_its_503_counts",
    ),
    Guard(
        "kernel",
        "a 503 of a requester's storage counts",
        "contracts/euterpe/access.py",
        "except ObjectsFailing as error:",
        "except ZeroDivisionError as error:",
        "tests/contracts/euterpe/test_outages.py::test_a_requesters_storage_that_does_not_answer_is_waited_for_and_its_503_counts",
    ),
    Guard(
        "kernel",
        "an open breaker lets nothing through",
        "objects/storage_breaker.py",
        "if now < self._closed_until:",
        "if False:",
        "tests/objects/test_breaker.py",
    ),
    Guard(
        "worker",
        "only an error about a settlement ends its job",
        "worker/flush.py",
        "if together or is_about_settlement(error):",
        "if not isinstance(error, StoreUnavailable):",
        "tests/worker/test_writing.py::test_an_error_that_is_not_about_a_settlement_ends_no_job",
    ),
    Guard(
        "redis",
        "what comes out of a driver is an outage",
        "store/redis/client.py",
        'if not is_from_driver(error, "redis"):',
        "if True:",
        "tests/faults/test_resets.py::test_a_redis_connection_that_closes_before_a_write_is_an_outage",
    ),
    Guard(
        "kernel",
        "a mistake of ours is no outage",
        "kernel/origin.py",
        'called = "" if package == OURS else called or package',
        "called = called or package if package != OURS else called",
        "tests/kernel/test_origin.py",
    ),
    Guard(
        "kernel",
        "requests under way make no pause longer",
        "objects/storage_breaker.py",
        "if self._failures == FAILURES or self._is_probing:",
        "if self._failures >= FAILURES:",
        "tests/objects/test_breaker.py::test_requests_that_were_under_way_make_no_pause_longer",
    ),
    *(
        Guard(
            store,
            "an answer that was lost costs no attempt",
            "engine/begun.py",
            "(*waited, *remote, *unheard)",
            "(*waited, *remote)",
            f"{UNHEARD}::test_a_claim_whose_answer_was_lost_costs_no_attempt",
        )
        for store in ("sqlite", "postgres", "redis")
    ),
    Guard(
        "sqlite",
        "an answer that was lost is written down",
        "worker/local.py",
        "self._unheard.add(asked_at)",
        "pass",
        f"{UNHEARD}::test_a_claim_whose_answer_was_lost_costs_no_attempt",
    ),
    Guard(
        "worker",
        "other times of a worker count",
        "engine/unheard.py",
        "any(window.begin <= claimed_at <= window.end for window in windows)",
        "any(windows)",
        f"{UNHEARD}::test_only_claims_of_that_worker_and_that_time_went_unheard",
    ),
    Guard(
        "worker",
        "a claim that was heard of again counts",
        "engine/begun.py",
        "if is_unconfirmed(job) and not is_ahead(job)]",
        "if not is_ahead(job)]",
        f"{UNHEARD}::test_only_claims_of_that_worker_and_that_time_went_unheard",
    ),
    Guard(
        "kernel",
        "an odd error of a claim ends no worker",
        "worker/shift.py",
        "except Exception as error:  # a worker that ends would take its running jobs with it",
        "except ZeroDivisionError as error:",
        f"{UNHEARD}::test_an_odd_error_of_a_claim_ends_no_worker",
    ),
]
