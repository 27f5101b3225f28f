-- needs: lib
-- ARGV: worker, limit, lease_ms. Expired leases first, then due events; answers their hashes by seq.

local WORKER, LIMIT, LEASE = ARGV[3], tonumber(ARGV[4]), int(now + tonumber(ARGV[5]))
local DUE, LEASED = P .. 'jobs:outbox:due', P .. 'jobs:outbox:leased'
local taken = {}

local function take(set, max, lost)
  local members = call('ZRANGEBYSCORE', set, '-inf', max, 'LIMIT', 0, LIMIT - #taken)
  for _, m in ipairs(members) do
    local key = P .. 'outbox:' .. id_in(m)
    call('HINCRBY', key, 'claim_version', 1)
    if lost then call('HINCRBY', key, 'attempt_count', 1) end
    call('HSET', key, 'status', 'delivering', 'worker_id', WORKER, 'lease_expires_at', LEASE, 'heartbeat_at', NOW)
    call('ZREM', DUE, m)
    taken[#taken + 1] = m
  end
end

take(LEASED, '(' .. NOW, true)
take(DUE, NOW, false)
table.sort(taken)
local reply = {}
for _, m in ipairs(taken) do
  call('ZADD', LEASED, LEASE, m)
  reply[#reply + 1] = call('HGETALL', P .. 'outbox:' .. id_in(m))
end
return reply
