-- needs: lib adopt again line outbox take
-- ARGV: worker, limit, lease_ms, start ('1' or ''), queues…, and after an empty one the messages of `jobs:stream` that
-- were handed to the worker already (its door). Answers {now, hashes…}: the jobs in order, as they were before the claim.

local function messages_of(stream, n)
  local found = redis.pcall('XREADGROUP', 'GROUP', GROUP, WORKER, 'COUNT', n, 'STREAMS', stream, '>')
  if found and found.err then
    if not string.find(found.err, 'NOGROUP', 1, true) then error(found.err) end
    call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
    found = call('XREADGROUP', 'GROUP', GROUP, WORKER, 'COUNT', n, 'STREAMS', stream, '>')
  end
  return found and found[1][2] or {}
end

-- A message that is the worker's already, and nobody else's since. A claim of none, or of a paused queue, puts its job
-- back in line.
local DOOR = string.match(WORKER, '^[^~]*') -- a claim ahead has an owner of its own, a door has the worker's name
local function take_handed(msg, paused)
  local stream = stream_of('default')
  local entry, holder = call('XRANGE', stream, msg, msg)[1], redis.pcall('XPENDING', stream, GROUP, msg, msg, 1)
  if not entry or holder.err or not holder[1] or holder[1][2] ~= DOOR then return end
  local id = as_map(entry[2]).job_id
  if LIMIT > 0 and not paused then
    local before = n_claimed
    take_entry(entry, stream, 'default')
    count('default', 'queued', before - n_claimed)
    count('default', 'running', n_claimed - before)
    return
  end
  if id and job_of(id, entry[2], msg, stream, 'default') then
    call('HSET', job_key(id), 'msg', send(id, read(job_key(id), LINE_FIELDS)))
  end
  ack(stream, msg)
end

-- Take from one stream until it is empty or the claim is full.
local function take_from(stream, queue, priority)
  local before = n_claimed
  repeat
    local want = LIMIT - n_claimed
    local messages = want > 0 and messages_of(stream, want) or {}
    for _, entry in ipairs(messages) do take_entry(entry, stream, queue, priority) end
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
local last = #ARGV
for i = 7, last do
  if ARGV[i] == '' then
    for k = i + 1, #ARGV do take_handed(ARGV[k], paused['default']) end
    last = i - 1
    break
  end
end
for i = 7, last do
  local queue = ARGV[i]
  if not paused[queue] and n_claimed < LIMIT then
    take(queue)
    if line_up_due(queue) > 0 and n_claimed < LIMIT then take(queue) end
  end
end
flush()
return claimed
