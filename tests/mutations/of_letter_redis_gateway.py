"""The guards of contract 001 against what foreign gateways, workers and programs write."""

from __future__ import annotations

from tests.mutations.guard import Guard

FOLDER = "tests/contracts/redis_gateway"
KEYS = f"{FOLDER}/test_keys_of_others.py"
LET_GO = f"{FOLDER}/test_let_go.py"
AT_ONCE = f"{FOLDER}/test_at_once.py"
CHAT = "tests/llm/test_chat.py"


def script(name: str, file: str, before: str, after: str, test: str) -> Guard:
    return Guard("redis", name, f"store/redis/scripts/{file}.lua", before, after, test)


LETTER_REDIS_GATEWAY = [
    script(
        "a foreign key names a UUID",
        "create",
        " or not is_uuid(id) then return nil end",
        " then return nil end",
        f"{KEYS}::test_a_key_that_stands_for_no_job_is_free",
    ),
    script(
        "a foreign key names a job that is there",
        "create",
        "if v.err or not v[1] or ",
        "if ",
        f"{KEYS}::test_a_key_that_stands_for_no_job_is_free",
    ),
    script(
        "a foreign key names a job of the requester",
        "create",
        " or (v[2] or '') ~= new.requester_id then return nil end",
        " then return nil end",
        f"{KEYS}::test_a_key_does_not_answer_with_another_requesters_job",
    ),
    script(
        "a foreign key names a job of the contract",
        "create",
        "if (v[3] or (v[4] and OWN or FOREIGN)) ~= new.contract then return nil end",
        "",
        f"{KEYS}::test_a_key_does_not_answer_with_another_contracts_job",
    ),
    script(
        "a foreign key of another type is replaced",
        "create",
        "if new.idem_replaces then call('UNLINK', P .. new.idem) end",
        "",
        f"{KEYS}::test_a_key_of_another_type_is_free",
    ),
    script(
        "a copy waits for the message before it",
        "again",
        "if present and is_pending(stream, present) then",
        "if false then",
        f"{LET_GO}::test_a_copy_of_a_job_that_a_foreign_worker_runs_does_not_run",
    ),
    script(
        "a copy of a held job is dropped",
        "take",
        " or (job.held and not running) then",
        " then",
        f"{LET_GO}::test_a_copy_of_a_job_that_waits_for_its_time_does_not_run_before_it",
    ),
    script(
        "an early acknowledgement is given time",
        "with_expired_lease",
        "if now - last_written(id, job) < tonumber(IDLE_MS) then return false end",
        "",
        f"{LET_GO}::test_a_worker_that_acknowledged_early_and_still_writes_keeps_its_job",
    ),
    script(
        "an event does not overwrite a result",
        "rest",
        "if field and not job[field] and data",
        "if field and data",
        f"{LET_GO}::test_an_event_does_not_overwrite_the_result_in_the_hash",
    ),
    script(
        "short TTLs wait for the end",
        "lib",
        "ended and 1 or LEAST_OPEN_S",
        "1",
        f"{FOLDER}/test_data_model.py::test_a_job_with_a_short_ttl_is_kept_until_it_has_ended",
    ),
    script(
        "a job without a TTL gets one",
        "adopt",
        "int(left) or JOB_TTL_S",
        "int(left) or '0'",
        f"{FOLDER}/test_foreign_producers.py::test_a_job_that_names_no_ttl_gets_that_of_the_setting",
    ),
    script(
        "a handed message is still the worker's",
        "claim",
        " or holder[1][2] ~= DOOR then return end",
        " then return end",
        f"{AT_ONCE}::test_a_handed_message_that_another_has_taken_over_is_not_run",
    ),
    script(
        "a handed message of a paused queue goes back",
        "claim",
        "if LIMIT > 0 and not paused then",
        "if LIMIT > 0 then",
        f"{AT_ONCE}::test_a_paused_queue_hands_out_nothing_at_the_door",
    ),
    Guard(
        "redis",
        "the door is shut without a free slot",
        "worker/local.py",
        "            await self._door.shut()\n",
        "            pass\n",
        f"{AT_ONCE}::test_a_worker_without_a_free_slot_waits_for_no_message --timeout=10",
    ),
    Guard(
        "redis",
        "retry is no block of its own",
        "http/sse.py",
        'f"retry: {random.randint(*RETRY_MS)}\\n"',
        'f"retry: {random.randint(*RETRY_MS)}\\n\\n"',
        f"{FOLDER}/test_http.py::test_the_first_block_of_a_stream_is_hello_with_the_time_to_come_back",
    ),
    Guard(
        "kernel",
        "jobs share no cookies of models",
        "llm/post.py",
        "            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),\n",
        "",
        f"{CHAT}::test_a_cookie_of_one_job_is_not_sent_by_another",
    ),
]
