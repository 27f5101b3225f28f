-- needs: lib adopt line take
-- ARGV: worker, limit, lease_ms, start ('1' or ''), queues… Answers {now, hashes…}: the jobs in order, as they
-- were before the claim.

local function messages_of(stream, n)
  local found = redis.pcall('XREADGROUP', 'GROUP', GROUP, WORKER, 'COUNT', n, 'STREAMS', stream, '>')
  if found and found.err then
    if not string.find(found.err, 'NOGROUP', 1, true) then error(found.err) end
    call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
    found = call('XREADGROUP', 'GROUP', GROUP, WORKER, 'COUNT', n, 'STREAMS', stream, '>')
  end
  return found and found[1][2] or {}
end

-- Take from one stream until it is empty or the claim is full.
local function take_from(stream, queue, priority)
  local before = n_claimed
  repeat
    local want = LIMIT - n_claimed
    local messages = want > 0 and messages_of(stream, want) or {}
    for _, entry in ipairs(messages) do
      local msg, fields = entry[1], entry[2] or {}
      local id = fields[1] == 'job_id' and fields[2] ~= '' and fields[2] or as_map(fields).job_id
      local flat = id and job_of(id, fields, msg, queue, priority)
      if flat then take_one(id, flat, msg) else ack(stream, msg) end
    end
  until #messages < want or want <= 0
  local n = n_claimed - before
  count(queue, 'queued', -n)
  count(queue, 'running', n)
end

local function take(queue)
  local priorities = P .. 'jobs:priorities:' .. queue
  local in_use, default_seen = call('ZREVRANGE', priorities, 0, -1), false
  for _, priority in ipairs(in_use) do
    if n_claimed >= LIMIT then return end
    if tonumber(priority) < 0 and not default_seen then
      default_seen = true
      take_from(stream_of(queue), queue)
    end
    local stream = stream_of(queue, priority)
    take_from(stream, queue, priority)
    if n_claimed < LIMIT and call('XLEN', stream) == 0 then
      call('DEL', stream)
      call('ZREM', priorities, priority)
    end
  end
  if not default_seen and n_claimed < LIMIT then take_from(stream_of(queue), queue) end
end

local paused = {}
for _, queue in ipairs(call('SMEMBERS', P .. 'jobs:paused')) do paused[queue] = true end
for i = 7, #ARGV do
  local queue = ARGV[i]
  if not paused[queue] and n_claimed < LIMIT then
    take(queue)
    if line_up_due(queue) > 0 and n_claimed < LIMIT then take(queue) end
  end
end
flush()
return claimed
