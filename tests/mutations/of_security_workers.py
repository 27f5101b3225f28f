"""Guards of the walls around workers: jobs that a worker may claim, change and create, and effects on other tenants."""

from __future__ import annotations

from tests.mutations.guard import CLAIM, Guard

PLANE = "contracts/control_plane"
BOUND = "tests/security/test_bound_workers.py"
CLAIMS = "tests/security/test_claims.py"
TOKENS = "tests/security/test_worker_tokens.py"
WORDS = "tests/security/test_worker_words.py"
ALONE = f"{CLAIM}::test_a_claim_for_some_tenants_takes_theirs_alone_in_order"

SECURITY_WORKERS = [
    Guard(
        "sqlite",
        "a bound claim takes its tenants' jobs alone",
        "store/sqlite/queries.sql",
        "AND +requester_id IN (SELECT value FROM json_each(?2))",
        "",
        ALONE,
    ),
    Guard(
        "postgres",
        "a bound claim takes its tenants' jobs alone",
        "store/postgres/claim.py",
        'f"{IN_LINE} AND j.requester_id = ANY ($9::text[])"',
        'f"{IN_LINE} AND $9::text[] IS NOT NULL"',
        ALONE,
    ),
    Guard(
        "redis",
        "a bound claim takes its tenants' jobs alone",
        "store/redis/scripts/claim_of_tenants.lua",
        "return mine[requester or ''] == true",
        "return true",
        ALONE,
    ),
    Guard(
        "redis",
        "a message that was taken for a tenant is nobody else's",
        "store/redis/scripts/claim_of_tenants.lua",
        "        ack(stream, msg)\n",
        "",
        "tests/conformance/test_backlog.py::test_jobs_that_were_taken_for_a_tenant_are_running",
    ),
    Guard(
        "redis",
        "a walk goes on behind the first page",
        "store/redis/bound.py",
        "while not is_at_end and len(jobs) < request.limit:",
        "if True:",
        f"{CLAIM}::test_a_tenants_job_is_found_behind_many_of_others",
    ),
    Guard(
        "sqlite",
        "a claim over HTTP is bound",
        f"{PLANE}/claims.py",
        "self._terms.provisional_ms, tenants=tenants)",
        "self._terms.provisional_ms)",
        f"{BOUND}::test_a_tenants_worker_key_sees_its_own_tenant_alone",
    ),
    Guard(
        "sqlite",
        "a tenant's key is bound to its tenant",
        f"{PLANE}/binding.py",
        "every = who.admin or not who.requester_id",
        "every = True or not who.requester_id",
        f"{BOUND}::test_a_tenants_worker_key_sees_its_own_tenant_alone",
    ),
    Guard(
        "sqlite",
        "a lease is proved by the worker that is bound to its job",
        f"{PLANE}/leases.py",
        "if worker.may_have(job)}",
        "}",
        f"{BOUND}::test_a_worker_of_another_tenant_or_queue_touches_no_lease",
    ),
    Guard(
        "sqlite",
        "follow-ups stand in queues that the worker may fill",
        f"{PLANE}/follow_ups.py",
        "        worker.check_queue(one.queue, parent)\n",
        "",
        f"{BOUND}::test_what_a_worker_creates_is_its_parents_tenants_in_its_queues",
    ),
    Guard(
        "sqlite",
        "follow-ups wait for jobs of their own tenant",
        f"{PLANE}/follow_ups.py",
        "and job.requester_id == parent.requester_id",
        "",
        f"{BOUND}::test_what_a_worker_creates_is_its_parents_tenants_in_its_queues",
    ),
    Guard(
        "sqlite",
        "nobody puts a job into another tenant's lane",
        "kernel/new_jobs.py",
        "is_lane_of_another(new.queue, new.requester_id),",
        "False,",
        f"{BOUND}::test_a_lane_cannot_be_spelled_by_others",
    ),
    Guard(
        "sqlite",
        "each kind of binding has its own wake-up",
        f"{PLANE}/waiting.py",
        "for tenants in list(self._bindings):",
        "for tenants in list(self._bindings)[:1]:",
        f"{BOUND}::test_a_parked_bound_worker_is_woken_for_its_tenants_job",
    ),
    Guard(
        "sqlite",
        "one job's payload stops no claim",
        f"{PLANE}/hand_backs.py",
        "ends.append(_release(job, error) if _is_outage(error) else _end(job, error))",
        "raise",
        f"{CLAIMS}::test_in_a_batch_the_others_are_given",
    ),
    Guard(
        "sqlite",
        "an outage of the object store ends no job",
        f"{PLANE}/hand_backs.py",
        "_release(job, error) if _is_outage(error) else",
        "",
        f"{CLAIMS}::test_an_outage_of_the_object_store_ends_no_job",
    ),
    Guard(
        "kernel",
        "a worker survives a claim that is refused",
        "worker/remote/plane.py",
        '            if not refused.ends_worker:\n                raise ServerAway(f"this claim',
        '            if False:\n                raise ServerAway(f"this claim',
        f"{CLAIMS} -k refused_claim",
    ),
    Guard(
        "sqlite",
        "a token that was rotated is worth nothing",
        "http/worker_registry.py",
        'if (used_at := _used_after(body["tokens"], place)) is not None:',
        "if (used_at := _used_after([], place)) is not None:",
        f"{TOKENS}::test_a_rotated_token_that_is_used_again_revokes_the_worker",
    ),
    Guard(
        "kernel",
        "a task cannot emit a move",
        "worker/context.py",
        "        check_own(type)\n",
        "",
        f"{WORDS} -k emit",
    ),
    Guard(
        "kernel",
        "no event of a task is called as a status is",
        "kernel/events.py",
        "OWN_EVENTS = MOVES | WORDS_OF_MOVES | {",
        "OWN_EVENTS = MOVES | {",
        f"{WORDS}::test_every_word_for_a_move_is_the_system_s_own",
    ),
    Guard(
        "sqlite",
        "a worker cannot tell a move that it does not make",
        f"{PLANE}/moves.py",
        "        check_own(kind)\n",
        "        pass\n",
        f"{WORDS}::test_a_worker_cannot_tell_a_move_that_it_does_not_make",
    ),
    Guard(
        "sqlite",
        "a log is readable whatever it holds",
        f"{PLANE}/logs.py",
        "    except (ValueError, RecursionError):  # an old version",
        "    except KeyError:  # an old version",
        f"{WORDS}::test_a_log_is_readable_whatever_events_of_that_type_hold",
    ),
    Guard(
        "kernel",
        "metrics name no tenant",
        "engine/depths.py",
        "(name.partition(OF_TENANT)[0] or name, its_own)",
        "(name, its_own)",
        f"{WORDS} -k counted_together",
    ),
]
