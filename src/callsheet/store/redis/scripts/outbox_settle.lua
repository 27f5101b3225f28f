-- needs: lib outbox
-- ARGV: event_id, claim_version, status, delay_ms, counts, error of each. Answers 1 applied or 3 stale.

local function settle(id, version, status, delay_ms, counts, error)
  local key = P .. 'outbox:' .. id
  local event = read(key, {'status', 'claim_version', 'seq', 'requester_id', 'destination'})
  if event.status ~= 'delivering' or event.claim_version ~= version then return 3 end
  local m = member(event.seq, id)
  call('ZREM', P .. 'jobs:outbox:leased', m)
  call('HSET', key, 'status', status, 'lease_expires_at', '', 'heartbeat_at', '')
  if counts == '1' then call('HINCRBY', key, 'attempt_count', 1) end
  if error ~= '' then call('HSET', key, 'error', error) end
  if status == 'pending' then
    local run_at = int(now + tonumber(delay_ms))
    call('HSET', key, 'run_at', run_at, 'worker_id', '', 'ended_at', '')
    put_due(event.requester_id or '', event.destination or '', run_at, m)
  else
    call('HSET', key, 'ended_at', NOW)
    call('ZADD', P .. 'jobs:outbox:ended', NOW, m)
  end
  return 1
end

local reply = {}
for i = 3, #ARGV, 6 do reply[#reply + 1] = settle(unpack(ARGV, i, i + 5)) end
return reply
