-- needs: lib outbox
-- ARGV: worker, limit, lease_ms, each, how many rooms, how many without, then requester, destination, room of each room,
-- then the requesters left out. Expired leases first, then of each destination its share, the oldest; answers hashes by seq.

local WORKER, LIMIT, LEASE, EACH = ARGV[3], tonumber(ARGV[4]), int(now + tonumber(ARGV[5])), tonumber(ARGV[6])
local LEASED, rooms, without, at = P .. 'jobs:outbox:leased', {}, {}, 9
for _ = 1, tonumber(ARGV[7]) do
  rooms[line_of(ARGV[at], ARGV[at + 1])] = tonumber(ARGV[at + 2])
  at = at + 3
end
for i = at, at + tonumber(ARGV[8]) - 1 do without[ARGV[i]] = true end

local function room(requester_id, line) return without[requester_id] and 0 or rooms[line] or EACH end
local function requester_in(line)
  local mark = string.find(line, ':', 1, true)
  return string.sub(line, mark + 1, mark + tonumber(string.sub(line, 1, mark - 1)))
end

local taken = {}
local function take(m, lost)
  local key = P .. 'outbox:' .. id_in(m)
  call('HINCRBY', key, 'claim_version', 1)
  if lost then call('HINCRBY', key, 'attempt_count', 1) end
  call('HSET', key, 'status', 'delivering', 'worker_id', WORKER, 'lease_expires_at', LEASE, 'heartbeat_at', NOW)
  taken[#taken + 1] = m
end

for _, m in ipairs(call('ZRANGEBYSCORE', LEASED, '-inf', '(' .. NOW)) do
  if #taken >= LIMIT then break end
  local who = call('HMGET', P .. 'outbox:' .. id_in(m), 'requester_id', 'destination')
  if room(who[1] or '', line_of(who[1] or '', who[2] or '')) > 0 then take(m, true) end
end

local heads = {}
if #taken < LIMIT then
  for _, line in ipairs(call('ZRANGEBYSCORE', DESTINATIONS, '-inf', NOW)) do
    local share = math.min(room(requester_in(line), line), LIMIT - #taken)
    if share > 0 then
      local found = call('ZRANGEBYSCORE', LINE .. line, '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, share)
      for i = 1, #found, 2 do heads[#heads + 1] = {tonumber(found[i + 1]), found[i], line} end
    end
  end
end
table.sort(heads, function(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  return a[2] < b[2]
end)
for i = 1, math.min(#heads, LIMIT - #taken) do
  local m, line = heads[i][2], heads[i][3]
  take(m, false)
  call('ZREM', LINE .. line, m)
  note_first(line)
end

table.sort(taken)
local reply = {}
for _, m in ipairs(taken) do
  call('ZADD', LEASED, LEASE, m)
  reply[#reply + 1] = call('HGETALL', P .. 'outbox:' .. id_in(m))
end
return reply
