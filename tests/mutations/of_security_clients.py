"""The walls between clients and the host: error messages, and unbounded growth by one client."""

from __future__ import annotations

from tests.mutations.guard import Guard

SECURITY = "tests/security"
REQUESTS = "tests/contracts/euterpe/test_requests.py"
LABELS = f"{SECURITY}/test_labels.py"
SESSIONS = "tests/http/test_sessions.py"
QUOTAS = f"{SECURITY}/test_quotas.py"
ENROLMENT = "tests/contracts/control_plane/test_enrolment.py"
WORDS = f"{SECURITY}/test_words_for_clients.py"


def _guard(name: str, file: str, before: str, after: str, test: str) -> Guard:
    return Guard("kernel", name, file, before, after, test)  # "kernel": it is of no store in particular


SECURITY_CLIENTS = [
    _guard(
        "clients read no path of the host",
        "kernel/errors.py",
        "return str(self) if self.public is None else self.public",
        "return str(self)",
        f"{WORDS}::test_no_answer_names_the_file_of_the_keys",
    ),
    _guard(
        "an error that nobody looked at says nothing",
        "http/problems.py",
        "error.public or OURS",
        "str(error)",
        f"{WORDS}::test_an_error_that_nobody_has_looked_at_says_nothing",
    ),
    _guard(
        "a job has no word of the store",
        "worker/execute.py",
        "JobError(outage.code, words_of(outage))",
        "JobError(outage.code, str(outage))",
        f"{WORDS}::test_neither_an_answer_nor_a_job_names_what_is_of_the_host",
    ),
    _guard(
        "an end that is refused has no word of the driver",
        "worker/outages.py",
        '"the store does not take what this attempt leaves behind"',
        "str(error)",
        f"{WORDS}::test_an_end_that_the_store_refuses_is_told_without_its_words",
    ),
    Guard(
        "sqlite",
        "a taken id is told without SQL",
        "store/sqlite/connection.py",
        "raise DuplicateJob(advice) from error",
        'raise DuplicateJob(f"{error}: {advice}") from error',
        f"{WORDS}::test_a_taken_id_is_told_without_a_word_of_the_store",
    ),
    Guard(
        "postgres",
        "a taken id is told without SQL",
        "store/postgres/enqueue.py",
        '"a job with one of these ids exists already; use new ids"',
        "str(error)",
        f"{WORDS}::test_a_taken_id_is_told_without_a_word_of_the_store",
    ),
    _guard(
        "a job holds an IPv6 address in brackets",
        "contracts/euterpe/locations.py",
        "{_brackets(host) if '[' in parts.netloc else host}",
        "{host}",
        f"{REQUESTS}::test_what_a_job_holds_of_a_url_is_read_as_it_was_written",
    ),
    _guard(
        "what stands in brackets is an address",
        "contracts/euterpe/locations.py",
        "{ipaddress.IPv6Address(host)}",
        "{host}",
        f"{REQUESTS}::test_a_host_that_is_none_is_refused_at_the_door",
    ),
    _guard(
        "a page of metrics has so many labels",
        "engine/depths.py",
        "if len(names) < MOST_SHOWN and (",
        "if (",
        f"{LABELS}::test_queues_that_a_tenant_invents_are_told_of_together -k sqlite",
    ),
    _guard(
        "a process has so many labels in its life",
        "engine/depths.py",
        " or len(self._ever) < MOST_EVER)",
        " or True)",
        f"{LABELS}::test_names_that_come_and_go_are_so_many_in_a_life",
    ),
    _guard(
        "queues of the settings have a label",
        "engine/depths.py",
        "self._own | engine.fair_queues",
        "self._own",
        f"{LABELS}::test_queues_that_a_tenant_invents_are_told_of_together -k sqlite",
    ),
    _guard(
        "a key has so many sessions",
        "http/sessions.py",
        "key=lambda item: item[1])[1 - MOST_OF_KEY :]",
        "key=lambda item: item[1])",
        f"{SESSIONS}::test_a_key_has_so_many_sessions_and_the_oldest_ends_for_one_more -k sqlite",
    ),
    _guard(
        "a key signs in so often",
        "http/sessions.py",
        "if not who.admin and sum(",
        "if False and sum(",
        f"{SESSIONS}::test_a_key_signs_in_so_often_in_a_minute -k sqlite",
    ),
    _guard(
        "a session that ended leaves its list",
        "http/sessions.py",
        "lambda starts: _without(starts, session_id)",
        "lambda starts: starts",
        f"{SESSIONS}::test_who_signs_out_makes_room_for_another -k sqlite",
    ),
    _guard(
        "a session of many at once is in the list",
        "http/sessions.py",
        "documents[0].version if documents else 0)\n            with",
        "0)\n            with",
        f"{SESSIONS}::test_many_who_sign_in_at_once_are_all_counted -k sqlite --timeout=20",
    ),
    _guard(
        "a tenant has so many open uploads",
        "engine/stored.py",
        "if most_open and before.open_uploads >= most_open:",
        "if False:",
        f"{QUOTAS}::test_open_uploads_are_counted_by_tenant_and_given_back -k sqlite",
    ),
    _guard(
        "a complete upload is not open",
        "http/upload_records.py",
        "            await state_of(request).quotas.add(record.requester_id, 0, closed=1)\n",
        "",
        f"{QUOTAS}::test_open_uploads_are_counted_by_tenant_and_given_back -k sqlite",
    ),
    _guard(
        "open uploads are counted anew",
        "engine/quotas.py",
        "part: part_bytes}, open_uploads=open_uploads)",
        "part: part_bytes})",
        f"{QUOTAS}::test_uploads_that_a_crash_left_counted_are_counted_anew -k sqlite",
    ),
    _guard(
        "an invitation that was taken back is gone",
        "http/worker_registry.py",
        "return await self._store.delete_document(ENROLMENT, enrolment_id)",
        "return bool(await self._store.documents(ENROLMENT, enrolment_id))",
        f"{ENROLMENT}::test_an_invitation_that_was_taken_back_is_good_for_nobody -k sqlite",
    ),
]
