"""Guards of contract 000 to the letter: folders, claims, callbacks, places and replays."""

from __future__ import annotations

from tests.mutations.guard import Guard

WORKSPACES = "tests/worker/test_workspaces.py"
CALLBACKS = "tests/contracts/euterpe/test_callbacks.py"
TOLD = "tests/contracts/euterpe/test_claims_told.py"
FAIRNESS = "tests/outbox/test_fairness.py"
ALONE = f"{CALLBACKS}::test_a_claim_of_the_store_alone_is_told_with_the_time_of_the_claim"
WHEN = f"{CALLBACKS}::test_a_callback_tells_when_its_move_was_and_not_when_it_is_sent"
EUTERPE_LETTER = [
    Guard(
        "kernel",
        "euterpe letter, a folder that a living process holds is left",
        "worker/workspace.py",
        "                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n                if _is_file",
        "                if _is_file",
        f"{WORKSPACES}::test_a_living_processs_folder_is_left_when_its_claim_is_lost_and_its_job_purged",
    ),
    Guard(
        "kernel",
        "euterpe letter, a folder goes with its claim and not before",
        "worker/sweep.py",
        "return job.status is not Status.RUNNING or job.claim != folder.claim",
        "return True",
        f"{WORKSPACES}::test_a_killed_workers_folder_goes_when_its_job_has_ended_while_a_worker_runs",
    ),
    Guard(
        "kernel",
        "euterpe letter, a folder of unknown make is left for a day",
        "worker/sweep.py",
        "return owner is Owner.GONE or now_s - folder.changed_at() >= ORPHAN_S",
        "return True",
        f"{WORKSPACES}::test_a_folder_without_a_lock_of_an_unknown_job_is_left_for_a_day",
    ),
    Guard(
        "kernel",
        "euterpe letter, the next attempt removes what a killed one left",
        "worker/workspace.py",
        "        workspace._remove_earlier()\n",
        "",
        f"{WORKSPACES}::test_the_next_attempt_removes_what_a_killed_one_has_left_and_nothing_of_living_ones",
    ),
    Guard(
        "sqlite",
        "euterpe letter, a claim is told in its own transaction",
        "store/sqlite/claim.py",
        "        if job.contract in CALLING:\n            _tell(db, job, now)\n",
        "        pass\n",
        ALONE,
    ),
    Guard(
        "postgres",
        "euterpe letter, an ordinary claim that meets a told one is undone",
        "store/postgres/claim.py",
        "CLAIM = Q.claim.replace(CONTRACT,",
        "CLAIM = Q.claim.replace('nowhere',",
        ALONE,
    ),
    Guard(
        "kernel",
        "euterpe letter, a claim and what tells of it are one transaction",
        "store/postgres/claim.py",
        "return await db.transact(lambda session: _claim_and_tell(session, sql, (*parameters, *of_tenants), request))",
        "return await _claim_and_tell(db, sql, (*parameters, *of_tenants), request)",
        f"{TOLD}::test_nobody_sees_a_claim_before_what_tells_of_it",
    ),
    Guard(
        "redis",
        "euterpe letter, the script that claims tells of it",
        "store/redis/scripts/take.lua",
        "  if job.on_claim then tell(id, at) end\n",
        "",
        "tests/store_redis/test_claims_told.py::test_the_script_that_claims_on_redis_tells_of_it",
    ),
    Guard(
        "sqlite",
        "euterpe letter, a callback tells when its move was",
        "store/sqlite/settle.py",
        "out.body_at(max(now, event_ms))",
        "out.body_at(now)",
        WHEN,
    ),
    Guard(
        "postgres",
        "euterpe letter, a callback tells when its move was",
        "store/postgres/queries.sql",
        "a.stamp || '\":' || m.at",
        "a.stamp || '\":' || m.now",
        WHEN,
    ),
    Guard(
        "redis",
        "euterpe letter, a callback tells when its move was",
        "store/redis/scripts/outbox.lua",
        "'\":' .. at .. '}'",
        "'\":' .. NOW .. '}'",
        WHEN,
    ),
    Guard(
        "kernel",
        "euterpe letter, a requester has the last slot only while nobody else waits",
        "outbox/shares.py",
        "is_only_requester = len(self._held_of) == 1 and self._requester_may_borrow",
        "is_only_requester = self._requester_may_borrow",
        f"{FAIRNESS}::test_one_requester_has_all_slots_only_while_nobody_else_waits_and_never_all_that_is_held",
    ),
    Guard(
        "kernel",
        "euterpe letter, what is borrowed holds up no stranger",
        "outbox/shares.py",
        "return self._running[where] - self._borrowed[where]",
        "return self._running[where]",
        f"{FAIRNESS}::test_a_lone_destination_borrows_and_its_surplus_makes_way",
    ),
    Guard(
        "kernel",
        "euterpe letter, what came while nobody else was there makes way",
        "outbox/shares.py",
        "return max(0, self._held[where] - self._borrowed[where] - self._most_of(where))",
        "return 0",
        f"{FAIRNESS}::test_a_lone_destination_borrows_and_its_surplus_makes_way",
    ),
    Guard(
        "kernel",
        "euterpe letter, what is opened for webhooks alone opens no storage beside its own rules",
        "cli/outgoing.py",
        "    if not (flags.storage_http or flags.storage_networks or flags.storage_ports):\n",
        "    if True:\n",
        "tests/cli/test_worker.py::test_a_workers_storages_have_settings_of_their_own",
    ),
    Guard(
        "kernel",
        "euterpe letter, a newer URL is judged before it is kept",
        "contracts/euterpe/routes.py",
        "    if asked.source_url is not None:\n        _check_place",
        "    if False:\n        _check_place",
        "tests/contracts/euterpe/test_requests.py::test_newer_credentials_lead_only_where_sources_may_be",
    ),
    Guard(
        "kernel",
        "euterpe letter, jobs retry runs a copy where an end is final",
        "cli/jobs.py",
        "job = await dead_letters.bring_back(engine, job_id)",
        "job = await engine.requeue(job_id)",
        "tests/cli/test_jobs.py::test_retry_runs_a_dead_transcode_as_a_copy_that_names_it_and_refuses_a_sealed_one",
    ),
    Guard(
        "sqlite",
        "euterpe letter, can_retry says no where credentials are sealed",
        "engine/dead_letters.py",
        "or not await _has_credentials(engine, job))",
        "or True)",
        "tests/http/test_overview.py::test_can_retry_is_what_a_replay_answers",
    ),
]
