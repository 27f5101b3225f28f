"""Guards of the studio's sessions, and of what a tenant sees of overview and lists."""

from __future__ import annotations

from tests.mutations.guard import Guard

SESSIONS = "tests/http/test_sessions.py::test_"
OVERVIEW = "tests/http/test_overview.py::test_"


def everywhere(name: str, file: str, before: str, after: str, test: str) -> Guard:
    return Guard("kernel", name, file, before, after, f"{SESSIONS}{test}")


def of_a_store(name: str, file: str, before: str, after: str, test: str) -> Guard:
    return Guard("sqlite", name, file, before, after, test)


STUDIO = [
    everywhere(
        "the proof's header",
        "http/sessions.py",
        'request.headers.get(PROOF) != "1" or not',
        "not",
        "another_site_can_do_nothing_with_the_cookie",
    ),
    everywhere(
        "the proof's origin",
        "http/sessions.py",
        ' != "1" or not _same_origin(request)',
        ' != "1"',
        "another_site_can_do_nothing_with_the_cookie",
    ),
    everywhere(
        "a session needs the proof",
        "http/auth.py",
        "    check_proof(request)\n",
        "",
        "another_site_can_do_nothing_with_the_cookie",
    ),
    everywhere(
        "scripts cannot read the cookie",
        "studio/session.py",
        '"httponly": True',
        '"httponly": False',
        "a_key_becomes_a_cookie_that_is_not_the_key",
    ),
    everywhere(
        "a cookie from TLS stays there",
        "http/proxies.py",
        'return "https" in {',
        'return "never" in {',
        "over_tls_the_cookie_is_for_tls_alone",
    ),
    of_a_store(
        "a revoked key ends its sessions",
        "http/keys.py",
        "return key if await self._good(key) else None",
        "return key",
        f"{SESSIONS}a_revoked_key_ends_its_session_at_once",
    ),
    of_a_store(
        "a session has an end",
        "http/sessions.py",
        'if not is_good(body["expires_at"], await self._store.now(), LIFE_S):',
        "if False:",
        f"{SESSIONS}an_expired_key_and_an_old_session_are_over",
    ),
    of_a_store(
        "signing out forgets the session",
        "http/sessions.py",
        "await self._store.delete_document(KIND, session_id)\n        for listener",
        "for listener",
        f"{SESSIONS}signing_out_ends_it_for_whoever_has_the_cookie",
    ),
    of_a_store(
        "the environment's key is compared",
        "http/keys.py",
        "same = bool(self._bootstrap) and hmac.compare_digest(digest, self._bootstrap)",
        "same = True",
        f"{SESSIONS}another_key_of_the_environment_ends_sessions_of_the_one_before",
    ),
    of_a_store(
        "a tenant's overview",
        "api/overview.py",
        "state, mine = state_of(request), who.sees",
        "state, mine = state_of(request), None",
        f"{OVERVIEW}the_overview_tells_what_waits_runs_and_ended",
    ),
    of_a_store(
        "a tenant's list",
        "contracts/redis_gateway/routes.py",
        "mine = requester if who.sees is None else who.sees",
        "mine = requester",
        f"{OVERVIEW}the_list_filters_by_all_that_it_names",
    ),
]
