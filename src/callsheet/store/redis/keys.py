"""Every Redis key of the store, with its type and meaning, and the key names that Python code uses.

Each name below is preceded by the store's prefix (`?prefix={cs0}:`, default none). A prefix with a hash tag puts all
keys of a store in one slot of a cluster: a script is given the prefix as its one declared key, and derives the others.

The contract's own (001), written and read by foreign gateways and workers too:

    jobs:stream               STREAM  the line of queue `default`, priority 0: `job_id`, `task`, `payload`;
                                      consumer group `workers`
    job:{id}                  HASH    the contract's nine fields (`status` in its five words), and ours (below)
    job:{id}:events           STREAM  events, ids `ms-seq`: `type`, `ts`, `step`, `data`, and our `progress`
    idempotency:{key}         HASH    a key without a requester: request_hash, job_id, response, expires_at

Ours:

    jobs:stream:{queue}       STREAM  the line of another queue, priority 0
    jobs:stream#{p}:{queue}   STREAM  the line of a queue at priority p
    jobs:priorities:{queue}   ZSET    priorities other than 0 that have a stream
    jobs:delayed:{queue}      ZSET    jobs held by their time: `seq:id` by run_at
    jobs:delayed              SET     queues with delayed jobs
    jobs:blocked              ZSET    jobs held by a dependency, by run_at
    jobs:waiting:{key}        ZSET    jobs held for a slot of a concurrency key: `seq:id` by -priority
    jobs:waiting              SET     concurrency keys with waiting jobs
    jobs:slots:{key}          SET     jobs with a slot: ready or running
    jobs:limits               HASH    slots of each concurrency key
    jobs:leases               ZSET    running jobs: `seq:id` by lease_expires_at
    jobs:broken               ZSET    queued jobs with a failed dependency, by seq
    jobs:ended                ZSET    ended jobs: `seq:id` by the time of their end
    jobs:dead                 ZSET    dead letters by seq
    jobs:ended:ttl            ZSET    ended jobs with a TTL, by expiry time; the member holds what prune needs,
                                      as JSON, since its hash may expire before prune comes by
    jobs:acknowledged         ZSET    messages that foreign workers acknowledged, though their job had not ended:
                                      `msg id` by the time when that was seen, or the job was last written to
    jobs:doors                SET     workers of ours that read `jobs:stream` with a command that blocks
    jobs:ttl                  ZSET    open jobs of the gateway's contract with a TTL, by the time to renew their EXPIRE
    jobs:all                  ZSET    all jobs by seq
    jobs:of:{requester}       ZSET    the jobs of one requester by seq
    jobs:queued:{requester}   SET     the queued jobs of one requester
    jobs:queued               SET     requesters with queued jobs
    jobs:seq                  STRING  the last seq
    jobs:idempotency          ZSET    names of idempotency keys, by the time they expire
    jobs:counts               HASH    `status:queue` to how many jobs
    jobs:paused               SET     paused queues
    job:{id}:attempts         LIST    ended attempts: claim_version, attempt, started_at, ended_at, outcome,
                                      worker_id, error, joined by the byte 31; without the last one when the hash
                                      has `outcome`
    job:{id}:checkpoints      HASH    results of completed steps; `~resumed_from`: the job that this one resumes,
                                      `~run_at`: the moment that it was asked for
    job:{id}:credentials      HASH    encrypted credentials: requester_id, credential_version and the contract's
                                      `storage_creds_…`; the job's hash has `credentials` = 1
    jobs:credentials:{kek}    ZSET    jobs whose credentials this KEK wraps, all of score 0, and so by id
    jobs:credentials          SET     KEKs that wrap credentials
    job:{id}:dependents       ZSET    jobs that wait for this one, by seq
    job:{id}:outbox           ZSET    the job's outbox events by seq
    unique:{key}              STRING  the queued or running job that holds a unique key
    idempotency:{requester}:{key}  HASH  an idempotency key of a requester
    outbox:{event_id}         HASH    one callback, fields as in kernel.job.OutboxEvent, and `seq`
    jobs:outbox:destinations  ZSET    destinations with pending callbacks, by the run_at of the first of them; one is
                                      the length of its requester's name, `:`, that name, and the destination
    jobs:outbox:due:{dest}    ZSET    pending callbacks of one of these: `seq:event_id` by run_at
    jobs:outbox:leased        ZSET    callbacks being delivered: `seq:event_id` by lease_expires_at
    jobs:outbox:ended         ZSET    callbacks that have ended: `seq:event_id` by the time of their end
    jobs:outbox:all           ZSET    all callbacks by seq
    jobs:outbox:seq           STRING  the last seq of a callback
    doc:{kind}                HASH    documents by id: `version:body`
    audit:log                 STREAM  security-relevant acts, ids `ms-n`; fields as in kernel.audit.AuditEntry
    audit:of:{requester}      STREAM  the entries of one tenant, with the same ids
    callsheet:schema          STRING  version of this data model
    jobs:hints                channel wake-ups, JSON `{"queues": […], "jobs": […]}`; `jobs:hints:{db}` but in database 0

Our fields of `job:{id}` have the names of kernel.job.Job (`kind` is the contract's `task`, `created_at`, `updated_at`
its `created_ts`, `updated_ts`). A field at its default is absent or empty. Defaults from other fields: `run_at` is
`created_ts`, `event_ms` is `updated_ts`, `ended_at` is `updated_ts` once the job has ended and is never stored,
`attempt_count` is `claim_version`, `started_at` and `heartbeat_at` are `attempt_started_at`. Four fields are valid for
a running job only and keep stale values afterwards: `lease_expires_at`, `heartbeat_at`, `attempt_started_at`, `msg`;
`held` is valid for a queued job only. Further fields: `seq` (15 digits; absent until we first touch a foreign job),
`msg` (the present message), `outcome` (`succeeded`: the last attempt's outcome, recorded in the hash alone), `dead`
(`1`: status word `error` means dead_letter), `dependents` (`1`: another job waits for this job), `credentials` (`1`:
credentials exist), `on_claim` (a claim's callback: the kernel's `ClaimCallback` as JSON), `again` (a message: when its
worker has acknowledged it, the job goes in line again), `rare` (`1`: settle must look at the fields that most jobs do
not have).
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

FAMILIES = ("job", "jobs", "idempotency", "unique", "outbox", "doc", "audit")
SCHEMA = 4
SCHEMA_NAMES = {1: "0001_engine", 2: "0002_destinations", 3: "0003_dead_letters", 4: "0004_quotas_and_audit"}


class Keys(NamedTuple):
    """The key names of one store."""

    prefix: str = ""

    def job(self, job_id: str, part: str = "") -> str:
        """Return the key of a job's hash, or of its events, attempts or checkpoints."""
        return f"{self.prefix}job:{job_id}:{part}" if part else f"{self.prefix}job:{job_id}"

    def document(self, kind: str) -> str:
        """Return the key of the hash with a kind's documents."""
        return f"{self.prefix}doc:{kind}"

    def jobs(self, name: str) -> str:
        """Return one of the store-wide keys: `jobs:{name}`."""
        return f"{self.prefix}jobs:{name}"


def idempotency_name(requester_id: str, key: str) -> str:
    """Return an idempotency key's Redis name without prefix; quoting `:` prevents collisions between requesters."""
    name = key.replace("%", "%25").replace(":", "%3A")
    return f"idempotency:{quote(requester_id, safe='')}:{name}" if requester_id else f"idempotency:{name}"
