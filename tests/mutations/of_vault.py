"""Guards of the vault: what keeps an envelope shut, a walk safe, and a refresh single."""

from __future__ import annotations

from tests.mutations.guard import CONFORMANCE, Guard

CREDENTIALS = f"{CONFORMANCE}/test_credentials.py"
REPLACED = f"{CREDENTIALS}::test_credentials_are_replaced_where_they_are_as_they_were_read"
FORGOTTEN = f"{CREDENTIALS}::test_success_and_cancellation_forget_credentials_and_a_failure_keeps_them"


def vault(name: str, file: str, before: str, after: str, test: str, *, times: int = 1) -> Guard:
    return Guard("kernel", name, f"vault/{file}", before, after, f"tests/vault/{test}", times)


def store(place: str, name: str, before: str, after: str, test: str) -> Guard:
    return Guard(place.partition("/")[0], name, f"store/{place}", before, after, test)


VAULT = [
    vault(
        "key commitment",
        "envelope.py",
        "if not hmac.compare_digest(commitment, own_commitment):",
        "if False:",
        "test_envelope.py -k two_keys",
    ),
    vault(
        "one way to write base64",
        "envelope.py",
        "if not hmac.compare_digest(base64.b64encode(raw), text.encode()):",
        "if False:",
        "test_envelope.py -k changed_character",
    ),
    vault(
        "the content is bound to its job",
        "envelope.py",
        'return binding.aad("content", head.hex())',
        "return head",
        "test_envelope.py -k layer_alone",
    ),
    vault(
        "the wrapped key is bound to its job",
        "local.py",
        'binding.aad("dek", kek_id)',
        "kek_id.encode()",
        "test_envelope.py -k layer_alone",
        times=2,
    ),
    vault(
        "a retired key",
        "local.py",
        "if number is not None and number < self._keys.least:",
        "if False:",
        "test_envelope.py -k retired",
    ),
    vault(
        "only the claim that is held",
        "vault.py",
        "if now is None or now.status is not Status.RUNNING or now.claim_version != job.claim_version:",
        "if now is None:",
        "test_envelope.py -k claim_that_is_held",
    ),
    vault(
        "an old look makes no second refresh",
        "refresh.py",
        "if await self._vault.version(job.job_id) > refused_version:",
        "if False:",
        "test_refresh.py -k older_than",
    ),
    vault(
        "refreshes have a budget",
        "refresh.py",
        "if now.refresh_count >= most:",
        "if False:",
        "test_refresh.py -k budget",
    ),
    vault(
        "one refresh for all",
        "refresh.py",
        "task = self._under_way.get(key)",
        "task = None",
        "test_refresh.py -k hundred",
    ),
    store(
        "sqlite/queries.sql",
        "credentials are compared",
        "WHERE job_id = ?1 AND credential_version = ?2 AND storage_creds_dek_wrapped = ?3",
        "WHERE job_id = ?1 AND credential_version = ?2 AND ?3 = ?3",
        REPLACED,
    ),
    store(
        "postgres/queries.sql",
        "credentials are compared",
        " AND c.storage_creds_dek_wrapped = a.was_wrapped",
        "",
        REPLACED,
    ),
    store(
        "redis/scripts/replace_credentials.lua",
        "credentials are compared",
        " and was[2] == ARGV[i + 2]",
        "",
        REPLACED,
    ),
    store(
        "postgres/queries.sql",
        "an end forgets credentials",
        "AND m.status IN ('succeeded', 'canceled')",
        "AND m.status = 'canceled'",
        FORGOTTEN,
    ),
    store(
        "postgres/queries.sql",
        "a job with credentials takes the long way",
        "UPDATE inbox_jobs SET has_dependents = true WHERE job_id = ANY ($1::uuid[]);",
        "UPDATE inbox_jobs SET has_dependents = false WHERE job_id = ANY ($1::uuid[]);",
        FORGOTTEN,
    ),
    store(
        "redis/scripts/move.lua",
        "an end forgets credentials",
        "if job.credentials and DELETES_CREDENTIALS[s.to] then",
        "if false then",
        FORGOTTEN,
    ),
]
