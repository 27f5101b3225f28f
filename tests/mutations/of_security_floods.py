"""Guards against many cheap requests that leave something behind: jobs, operations, names, endpoints, claims."""

from __future__ import annotations

from tests.mutations.guard import Guard

PLANE = "contracts/control_plane"
FLOODS = "tests/security/test_floods.py"
WITHIN = f"{FLOODS}::test_follow_ups_of_a_tenants_worker_stay_within_its_quota"
OPERATIONS = f"{FLOODS}::test_a_tenant_has_so_many_open_operations"
DOWNLOAD = "tests/contracts/euterpe/test_download.py"
WAITING = f"{FLOODS}::test_so_many_claims_and_heartbeats_of_a_tenants_workers_wait"

SECURITY_FLOODS = [
    Guard(
        "sqlite",
        "follow-ups of a tenant's worker need room",
        f"{PLANE}/moves.py",
        "        await places.take(lease.job.requester_id, len(settlements[-1].follow_ups))\n",
        "",
        WITHIN,
    ),
    Guard(
        "sqlite",
        "moves of one request share the room",
        f"{PLANE}/follow_ups.py",
        "self._left[requester_id] = left - count",
        "self._left[requester_id] = left",
        WITHIN,
    ),
    Guard(
        "sqlite",
        "requests of one tenant are decided one after the other",
        f"{PLANE}/follow_ups.py",
        "            await stack.enter_async_context(lines.setdefault(tenant, asyncio.Lock()))\n",
        "            pass\n",
        WITHIN,
    ),
    Guard(
        "sqlite",
        "one job may follow in the place of another",
        f"{PLANE}/follow_ups.py",
        "if self._quotas is None or count <= 1:",
        "if self._quotas is None or count < 1:",
        f"{FLOODS}::test_one_job_may_follow_in_the_place_of_another",
    ),
    Guard(
        "sqlite",
        "a tenant has so many open operations",
        "engine/operations.py",
        "if len(mine) - len(ended_operations) >= MOST_OPEN:",
        "if False:",
        OPERATIONS,
    ),
    Guard(
        "sqlite",
        "operations that begin at once are counted one after the other",
        "api/dead_letters.py",
        "async with START_LOCK.of(state):",
        "async with asyncio.Lock():",
        OPERATIONS,
    ),
    Guard(
        "sqlite",
        "ended operations of a tenant do not pile up",
        "engine/operations.py",
        "for _, operation_id in ended_operations[: max(0, len(mine) + 1 - MOST_OF_TENANT)]:",
        "for _, operation_id in ():",
        f"{FLOODS}::test_ended_operations_of_a_tenant_make_room_for_new_ones",
    ),
    Guard(
        "sqlite",
        "a tenant's workers have so many names",
        "http/limits.py",
        "if name not in names and len(names) >= MOST_NAMES:",
        "if False:",
        f"{FLOODS}::test_ever_new_names_of_a_tenants_workers_are_not_all_noted",
    ),
    Guard(
        "sqlite",
        "endpoints that are made at once are counted one after the other",
        "outbox/endpoints.py",
        "async with self._line:",
        "async with asyncio.Lock():",
        f"{FLOODS}::test_many_endpoints_at_once_are_no_more_than_a_tenant_may_have",
    ),
    Guard(
        "sqlite",
        "so many claims of a tenant's workers wait",
        f"{PLANE}/waiting.py",
        "if wait_s and _is_full(self._bindings, wish.tenants):",
        "if False:",
        WAITING,
    ),
    Guard(
        "sqlite",
        "so many heartbeats of a tenant's workers wait",
        f"{PLANE}/waiting.py",
        "if _is_full(self._beating, tenants):",
        "if False:",
        WAITING,
    ),
    Guard(
        "kernel",
        "a source that comes too slowly holds no slot",
        "contracts/euterpe/pace.py",
        "limit = asyncio.timeout_at(until)",
        "limit = asyncio.timeout_at(None)",
        f"{DOWNLOAD}::test_a_storage_that_takes_outputs_has_time_by_their_size --timeout 20",
    ),
    Guard(
        "kernel",
        "bytes that come give a source more time",
        "contracts/euterpe/download.py",
        "        part.count(len(piece))\n",
        "",
        f"{DOWNLOAD}::test_bytes_that_come_give_more_time",
    ),
    Guard(
        "postgres",
        "an id with a NUL is that of nothing",
        "store/sql.py",
        '        if id is not None and "\\0" in id:  # PostgreSQL text cannot contain it\n            return []\n',
        "",
        "tests/security/test_ids.py::test_no_id_and_no_parameter_with_a_nul_breaks_anything",
    ),
    Guard(
        "postgres",
        "no filter of the audit log holds a NUL",
        "api/audit.py",
        "actor: Annotated[str | None, Query(max_length=255, pattern=NO_NUL)]",
        "actor: Annotated[str | None, Query(max_length=255)]",
        "tests/security/test_ids.py::test_no_id_and_no_parameter_with_a_nul_breaks_anything",
    ),
    Guard(
        "sqlite",
        "an enrolment that nobody can use is not listed",
        "http/worker_registry.py",
        "if right.expires_at > now and right.uses_left > 0:",
        "if True:",
        "tests/contracts/control_plane/test_enrolment.py::test_invitations_that_can_be_used_are_listed_without_their_tokens",
    ),
]
