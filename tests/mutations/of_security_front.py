"""The walls that a request meets before anybody looks at it, and those around what the store holds."""

from __future__ import annotations

from tests.mutations.guard import Guard

SECURITY = "tests/security"
STALL = f"{SECURITY}/test_bodies_that_stall.py"
ORIGINS = f"{SECURITY}/test_origins_and_hosts.py"
MODES = f"{SECURITY}/test_file_modes.py"
SEALED = f"{SECURITY}/test_sealed_system_secrets.py"
SESSIONS = f"{SECURITY}/test_sessions_end.py"


def _guard(name: str, file: str, before: str, after: str, test: str) -> Guard:
    return Guard("kernel", name, file, before, after, test)  # "kernel": it is of no store in particular


ROUTING = "tests/http/test_routing.py"

FRONT = [
    _guard(
        "an earlier route keeps the paths that it matches",
        "http/routing.py",
        "if next(other for other in routes if other.matches(scope)[0] is Match.FULL) is route:",
        "if True:",
        f"{ROUTING}::test_an_earlier_route_with_a_parameter_keeps_the_paths_that_it_matches",
    ),
    _guard(
        "what routers do at the start is done",
        "http/routing.py",
        "        app.include_router(router)\n",
        "        app.router.routes.extend(router.routes)\n",
        f"{ROUTING}::test_what_a_router_does_at_the_start_and_the_end_is_done",
    ),
    _guard(
        "a body has a deadline",
        "http/middleware.py",
        "if not self._more or WHOLE in self._scope:",
        "if True:",
        f"{STALL}::test_a_stranger_s_body_that_stalls_is_not_waited_for --timeout=20",
    ),
    _guard(
        "a body has a least rate",
        "http/body_pace.py",
        "return min(idle_s, earned_s)",
        "return idle_s",
        f"{STALL}::test_the_meter_counts_pauses_and_the_whole",
    ),
    _guard(
        "a body is handed out to whoever has proved itself",
        "http/middleware.py",
        "if self._more and not self._body.is_open and KEY_ID not in self._scope:",
        "if False:",
        f"{STALL}::test_a_route_that_reads_before_it_asks_is_refused",
    ),
    _guard(
        "a worker proves itself before its upload is read",
        "contracts/control_plane/files.py",
        "    who = await worker_of(request)\n    body = await read(request, UploadBody)\n",
        "    body = await read(request, UploadBody)\n    who = await worker_of(request)\n",
        f"{STALL}::test_every_route_asks_who_is_there_before_it_reads",
    ),
    _guard(
        "a stranger's body is small",
        "http/middleware.py",
        "min(OPEN_BYTES, body_bytes)",
        "body_bytes",
        f"{STALL}::test_a_stranger_s_body_is_small",
    ),
    _guard(
        "strangers of one address are counted",
        "http/connections.py",
        "if self._inside[address] >= limits.per_address",
        "if False",
        f"{STALL}::test_one_address_has_so_many_connections_without_a_key",
    ),
    _guard(
        "strangers are counted",
        "http/connections.py",
        "elif self._inside.total() >= limits.most:",
        "elif False:",
        f"{STALL}::test_a_server_has_so_many_connections_without_a_key",
    ),
    _guard(
        "one Host is named",
        "http/hosts.py",
        "if len(hosts) != 1:",
        "if not hosts:",
        f"{ORIGINS}::test_a_request_names_its_host_once",
    ),
    _guard(
        "another name is not answered to",
        "http/hosts.py",
        "if self._lists and not self._answers_to(host) and",
        "if False and",
        f"{ORIGINS}::test_another_name_is_not_answered_to_without_keys",
    ),
    _guard(
        "another origin changes nothing",
        "http/hosts.py",
        'if self.keyless and scope["method"] not in SAFE and not is_own_page(_headers(scope), host):',
        "if False:",
        f"{ORIGINS}::test_a_page_of_another_site_changes_nothing_without_keys",
    ),
    _guard(
        "JSON says that it is JSON",
        "http/json_bodies.py",
        'request.headers.get("content-type", "")',
        'request.headers.get("content-type", "application/json")',
        f"{ORIGINS}::test_json_says_that_it_is_json",
    ),
    _guard(
        "a sign-in counts against its key",
        "http/sessions.py",
        "        count(_principal(key))\n",
        "",
        f"{ORIGINS}::test_sign_ins_count_against_the_key_s_rate",
    ),
    _guard(
        "a nonce has no dot",
        "receiver.py",
        "if not IS_NONCE(nonce):",
        "if False:",
        f"{ORIGINS}::test_a_nonce_cannot_hold_a_piece_of_the_body",
    ),
    _guard(
        "a key cannot be guessed",
        "http/keys.py",
        "if len(text) < LEAST_LETTERS or len(set(text)) < LEAST_VARIETY:",
        "if False:",
        f"{ORIGINS}::test_a_key_that_can_be_guessed_is_refused_at_the_start",
    ),
    _guard(
        "a credential is no request id",
        "http/middleware.py",
        "if any(_tells(client_id, value) for name, value in headers if name in CREDENTIALS):",
        "if False:",
        f"{SECURITY}/test_request_ids.py::test_what_a_request_proves_itself_by_is_no_id",
    ),
    _guard(
        "a database is made private",
        "store/sqlite/files.py",
        "os.O_EXCL | os.O_CLOEXEC, mode))\n        os.chmod(path, mode)",
        "os.O_EXCL | os.O_CLOEXEC, 0o666))\n        os.chmod(path, 0o660)",
        f"{MODES}::test_a_database_is_never_open_to_others_on_its_way",
    ),
    _guard(
        "a database is kept private",
        "store/sqlite/files.py",
        "for file in _wide(path, mode):",
        "for file in ():",
        f"{MODES}::test_a_database_that_others_could_read_is_closed_to_them",
    ),
    _guard(
        "a clear secret is sealed",
        "engine/system_secrets.py",
        "if sealer is not None and sealed_text(document) is None:",
        "if False:",
        f"{SEALED}::test_a_secret_in_the_clear_is_sealed_when_a_keyring_comes -k sqlite",
    ),
    _guard(
        "signing out ends streams",
        "http/state.py",
        "        self.sessions.on_end.append(self.end_streams_of_session)\n",
        "",
        f"{SESSIONS}::test_signing_out_ends_the_streams_of_this_session_alone -k sqlite --timeout=20",
    ),
    _guard(
        "a session is looked at again",
        "http/state.py",
        "await self.keys.holds(who) and await self.sessions.holds(who)",
        "await self.keys.holds(who)",
        f"{SESSIONS}::test_a_ticket_of_a_session_ends_with_it -k sqlite",
    ),
    Guard(
        "kernel",
        "a parameter is given once",
        "http/middleware.py",
        'return query_refusal(self._scope["query_string"])',
        "return None",
        "tests/http/test_queries.py::test_a_parameter_that_is_given_twice_is_refused",
    ),
]
