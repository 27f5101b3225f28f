-- needs: lib outbox
-- ARGV: event_id and delay_ms of each. Answers 1 where an ended one waits again, else 0.

local function replay(id, delay_ms)
  local key = P .. 'outbox:' .. id
  local event = read(key, {'status', 'seq', 'requester_id', 'destination'})
  if event.status ~= 'delivered' and event.status ~= 'dead_letter' then return 0 end
  local m, run_at = member(event.seq, id), int(now + tonumber(delay_ms))
  call('HSET', key, 'status', 'pending', 'run_at', run_at, 'attempt_count', 0, 'worker_id', '', 'ended_at', '')
  call('ZREM', P .. 'jobs:outbox:ended', m)
  put_due(event.requester_id or '', event.destination or '', run_at, m)
  return 1
end

local reply = {}
for i = 3, #ARGV, 2 do reply[#reply + 1] = replay(ARGV[i], ARGV[i + 1]) end
return reply
