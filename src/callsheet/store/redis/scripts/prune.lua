-- needs: lib forget
-- ARGV: ended_before, limit. Deletes ended jobs with all that hangs on them, oldest first; answers how many.
-- A job with a TTL may be gone from Redis by itself: what the sets must forget stands in `jobs:ended:ttl`.

local BEFORE, LIMIT, SILENT_MS = ARGV[3], tonumber(ARGV[4]), 3600000

-- Callbacks that outlived their job and have ended since.
for _, m in ipairs(call('ZRANGEBYSCORE', P .. 'jobs:outbox:ended', '-inf', '(' .. BEFORE, 'LIMIT', 0, LIMIT)) do
  local event_id = id_in(m)
  local job_id = call('HGET', P .. 'outbox:' .. event_id, 'job_id')
  if not job_id or call('EXISTS', job_key(job_id)) == 0 then
    forget_event(event_id, string.sub(m, 1, 15))
    if job_id then call('ZREM', job_key(job_id) .. ':outbox', event_id) end
  end
end

local found, listed = {}, {}
local function list(gone)
  if not listed[gone.id] then
    listed[gone.id] = true
    found[#found + 1] = gone
  end
end
local own = call('ZRANGEBYSCORE', P .. 'jobs:ended:ttl', '-inf', '(' .. NOW, 'LIMIT', 0, math.max(LIMIT, BATCH))
for _, packed in ipairs(own) do
  local v = cjson.decode(packed)
  list({seq = v[1], id = v[2], status = v[3], queue = v[4], requester_id = v[5], at = v[6], packed = packed})
end
local old = call('ZRANGEBYSCORE', P .. 'jobs:ended', '-inf', '(' .. BEFORE, 'WITHSCORES', 'LIMIT', 0, LIMIT)
for i = 1, #old, 2 do
  local id = id_in(old[i])
  local job = read(job_key(id), ENDED)
  if not job.seq then -- nothing but these entries is left of it
    call('ZREM', P .. 'jobs:ended', old[i])
    call('ZREM', P .. 'jobs:all', id)
    call('ZREM', P .. 'jobs:dead', id)
    forget_credentials(id)
  else
    list(gone_of(id, job, old[i + 1]))
  end
end
table.sort(found, function(a, b)
  if a.at ~= b.at then return tonumber(a.at) < tonumber(b.at) end
  return tonumber(a.seq) < tonumber(b.seq)
end)
local n = math.min(#found, LIMIT)
for i = 1, n do forget(found[i]) end

for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'jobs:idempotency', '-inf', NOW, 'LIMIT', 0, 10 * BATCH)) do
  call('UNLINK', P .. name)
  call('ZREM', P .. 'jobs:idempotency', name)
end

-- Consumers of workers that are long gone and hold nothing.
for _, consumer in ipairs(redis.pcall('XINFO', 'CONSUMERS', P .. 'jobs:stream', GROUP)) do
  local info = as_map(consumer)
  if info.pending == 0 and info.idle > SILENT_MS then
    call('XGROUP', 'DELCONSUMER', P .. 'jobs:stream', GROUP, info.name)
    call('SREM', P .. 'jobs:doors', info.name)
  end
end
flush()
return n
