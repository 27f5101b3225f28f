"""Guards of jobs of any task, of batches, of registered tasks and of schedules over HTTP."""

from __future__ import annotations

from .guard import Guard

TESTS = "tests/http/test_any_task.py"
OVER_HTTP = "tests/http/test_schedules.py"
ENGINE = "tests/engine/test_schedules.py"


def of(file: str, *changes: tuple[str, str, str, str]) -> list[Guard]:
    """Return the guards of one file: name, text, what is left without it, and the test that must fail."""
    return [Guard("sqlite", name, file, before, after, test) for name, before, after, test in changes]


ANY_TASK = [
    *of(
        "api/new_jobs.py",
        (
            "keys of tenants do not meet",
            "    if requester_id:\n        return f\"@{quote(requester_id, safe='')}:{key}\"\n",
            "",
            f"{TESTS}::test_keys_of_tenants_do_not_meet",
        ),
        (
            "a plain key spells no tenant's",
            '    if key.startswith("@"):',
            "    if False:",
            f"{TESTS}::test_a_plain_key_cannot_spell_a_tenants",
        ),
        (
            "a dependency is the caller's own",
            "who.sees in (None, job.requester_id)",
            "True",
            f"{TESTS}::test_another_tenants_job_is_no_dependency",
        ),
        (
            "a tenant passes not all others",
            "abs(priority) > TENANT_PRIORITY:",
            "False:",
            f"{TESTS}::test_a_tenant_cannot_pass_all_others",
        ),
        (
            "a schedule makes no job of a contract",
            " or TASKS.get(self.task, contract) != contract:",
            ":",
            f"{OVER_HTTP}::test_a_schedule_makes_no_job_of_a_contract",
        ),
    ),
    *of(
        "api/creation.py",
        (
            "a key of its own passes no limit of running jobs",
            "            self._check_slot()\n",
            "            pass\n",
            f"{TESTS}::test_a_key_of_its_own_passes_no_limit_of_running_jobs",
        ),
    ),
    *of(
        "api/task_directory.py",
        (
            "patterns of workers stall no server",
            "pattern_options=LINEAR, ",
            "",
            f"{TESTS}::test_a_schema_that_reaches_out_or_stalls_checks_nothing",
        ),
        (
            "arguments are checked by the schema",
            "            _check(entry.validator, name, payload)\n",
            "            pass\n",
            f"{TESTS}::test_arguments_are_checked_by_the_schema_and_never_quoted",
        ),
    ),
    *of(
        "engine/task_register.py",
        (
            "tasks of a tenant's worker are its own",
            "requester_id is None or r.tenant in (EVERYBODY, requester_id)",
            "True",
            f"{TESTS}::test_tasks_of_a_tenants_worker_are_its_own",
        ),
    ),
    *of(
        "api/schedules.py",
        (
            "a tenant's schedule is small",
            "len(schedule.payload.encode()) > TENANT_PAYLOAD_BYTES:",
            "False:",
            f"{OVER_HTTP}::test_a_tenants_schedule_is_small",
        ),
        (
            "a tenant sees its own schedules",
            "return who.sees is None or (",
            "return True or (",
            f"{OVER_HTTP}::test_tenants_have_names_of_their_own",
        ),
    ),
    *of(
        "engine/schedules.py",
        (
            "a paused schedule fires nothing",
            "if schedule.paused or (",
            "if (",
            f"{ENGINE}::test_a_paused_schedule_waits_and_goes_on_with_the_next_slot",
        ),
        (
            "missed slots are bounded",
            "else due[-schedule.most :]",
            "else due",
            f"{ENGINE}::test_all_missed_slots_are_bounded",
        ),
        (
            "schedules of others stay",
            " and schedule.app in by_program",
            "",
            f"{ENGINE}::test_declared_schedules_follow_the_code_and_others_stay",
        ),
    ),
]
