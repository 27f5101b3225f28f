"""The Redis loop one would write by hand: the same keys, rows and events as the store's, and nothing else.

Three scripts; one connection claims while another ends what was claimed before. The line is the contract's stream with
its consumer group. No slots, no delays, no dependencies, no idempotency, no hints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, cast

import redis.asyncio

from bench.measure import LEASE_MS, PAYLOAD, RESULT, WORKER
from bench.side import cut, overlap

ENQUEUE = """
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
local last, all = redis.call('INCRBY', 'jobs:seq', #ARGV / 2), {}
for i = 1, #ARGV, 2 do
  local id, payload = ARGV[i], ARGV[i + 1]
  local key = 'job:' .. id
  redis.call('HSET', key, 'job_id', id, 'task', 'bench', 'payload', payload, 'queue', 'default', 'priority', '0',
    'status', 'queued', 'created_ts', now, 'updated_ts', now, 'run_at', now, 'claim_version', '0', 'attempt_count', '0',
    'max_attempts', '3', 'ttl_s', '0', 'result', '', 'error', '')
  redis.call('XADD', key .. ':events', now .. '-1', 'type', 'queued', 'ts', now, 'step', '', 'data', '{}', 'progress', '0')
  redis.call('XADD', 'jobs:stream', '*', 'job_id', id, 'task', 'bench', 'payload', payload)
  all[i], all[i + 1] = last - #ARGV / 2 + (i + 1) / 2, id
end
redis.call('ZADD', 'jobs:all', unpack(all))
redis.call('HINCRBY', 'jobs:counts', 'queued:default', #ARGV / 2)
"""
CLAIM = """
local worker, limit, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local found = redis.call('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', limit, 'STREAMS', 'jobs:stream', '>')
if not found then return {} end
local t = redis.call('TIME')
local ms = t[1] * 1000 + math.floor(t[2] / 1000)
local now, lease = string.format('%.0f', ms), string.format('%.0f', ms + lease_ms)
local claimed, leases = {}, {}
for _, entry in ipairs(found[1][2]) do
  local id = entry[2][2]
  local key = 'job:' .. id
  local version = redis.call('HINCRBY', key, 'claim_version', 1)
  redis.call('HINCRBY', key, 'attempt_count', 1)
  redis.call('HSET', key, 'status', 'running', 'worker_id', worker, 'lease_expires_at', lease, 'started_at', now,
    'heartbeat_at', now, 'updated_ts', now)
  redis.call('XADD', key .. ':events', now .. '-2', 'type', 'running', 'ts', now, 'step', '', 'data', '{}', 'progress', '0')
  leases[#leases + 1] = lease
  leases[#leases + 1] = id
  claimed[#claimed + 1] = {id, version, entry[1], entry[2][6]}
end
redis.call('ZADD', 'jobs:leases', unpack(leases))
redis.call('HINCRBY', 'jobs:counts', 'queued:default', -#claimed)
redis.call('HINCRBY', 'jobs:counts', 'running:default', #claimed)
return claimed
"""
FINISH = """
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
local messages, leases, ended = {}, {}, {}
for i = 1, #ARGV, 4 do
  local id, version = ARGV[i], ARGV[i + 1]
  local key = 'job:' .. id
  local job = redis.call('HMGET', key, 'claim_version', 'status', 'worker_id', 'started_at')
  if job[1] == version and job[2] == 'running' then
    redis.call('HSET', key, 'status', 'done', 'progress', '100', 'result', ARGV[i + 3], 'ended_at', now, 'updated_ts', now,
      'lease_expires_at', '')
    redis.call('XADD', key .. ':events', now .. '-3', 'type', 'done', 'ts', now, 'step', '', 'data', '{}', 'progress', '0')
    messages[#messages + 1] = ARGV[i + 2]
    leases[#leases + 1] = id
    ended[#ended + 1] = now
    ended[#ended + 1] = id
  end
end
if #messages > 0 then
  redis.call('ZREM', 'jobs:leases', unpack(leases))
  redis.call('ZADD', 'jobs:ended', unpack(ended))
  redis.call('HINCRBY', 'jobs:counts', 'running:default', -#messages)
  redis.call('HINCRBY', 'jobs:counts', 'succeeded:default', #messages)
  redis.call('XACK', 'jobs:stream', 'workers', unpack(messages))
  redis.call('XDEL', 'jobs:stream', unpack(messages))
end
return #messages
"""


class LostClaim(Exception):
    """The claim fence failed, although no other worker runs in this loop."""


class RedisLimit:
    """A Side: two connections."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self._claimer = redis.asyncio.Redis.from_url(self._url, single_connection_client=True)
        self._finisher = redis.asyncio.Redis.from_url(self._url, single_connection_client=True)
        await self._claimer.xgroup_create("jobs:stream", "workers", id="0", mkstream=True)
        scripts = [await self._claimer.script_load(text) for text in (ENQUEUE, CLAIM, FINISH)]
        self._enqueue, self._claim, self._finish = scripts

    async def close(self) -> None:
        await self._claimer.aclose()
        await self._finisher.aclose()

    def batches(self, ids: Sequence[str], size: int) -> list[list[str]]:
        return [[text for job_id in part for text in (job_id, PAYLOAD)] for part in cut(ids, size)]

    async def enqueue(self, batches: Sequence[list[str]]) -> None:
        for arguments in batches:
            await _call(self._claimer, self._enqueue, *arguments)

    async def drain(self, size: int) -> int:
        async def finish(rows: Sequence[Any]) -> None:
            arguments = [text for row in rows for text in (*row[:3], RESULT)]
            if await _call(self._finisher, self._finish, *arguments) != len(rows):
                raise LostClaim

        return await overlap(lambda: _call(self._claimer, self._claim, WORKER, size, LEASE_MS), finish)


async def _call(client: Any, script: str, *arguments: object) -> Any:
    return await cast("Awaitable[Any]", client.evalsha(script, 0, *arguments))
