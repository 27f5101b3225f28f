-- needs: lib
-- ARGV: lease_ms, then event_id and claim_version of each claim. Answers 1 held or 0 stale.

local LEASE, reply = int(now + tonumber(ARGV[3])), {}
for i = 4, #ARGV, 2 do
  local id = ARGV[i]
  local key = P .. 'outbox:' .. id
  local event = read(key, {'status', 'claim_version', 'seq'})
  local held = event.status == 'delivering' and event.claim_version == ARGV[i + 1]
  if held then
    call('HSET', key, 'lease_expires_at', LEASE, 'heartbeat_at', NOW)
    call('ZADD', P .. 'jobs:outbox:leased', LEASE, member(event.seq, id))
  end
  reply[#reply + 1] = held and 1 or 0
end
return reply
