-- needs: lib adopt line
-- ARGV: worker, limit, lease_ms, start ('1' or ''), queues… Answers {now, hashes…}: the jobs in order, as they
-- were before the claim.

local WORKER, LIMIT, START = ARGV[3], tonumber(ARGV[4]), ARGV[6] == '1'
local LEASE = int(now + tonumber(ARGV[5]))
local claimed, n_claimed = {NOW}, 0

local function messages_of(stream, n)
  local found = redis.pcall('XREADGROUP', 'GROUP', GROUP, WORKER, 'COUNT', n, 'STREAMS', stream, '>')
  if found and found.err then
    if not string.find(found.err, 'NOGROUP', 1, true) then error(found.err) end
    call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
    found = call('XREADGROUP', 'GROUP', GROUP, WORKER, 'COUNT', n, 'STREAMS', stream, '>')
  end
  return found and found[1][2] or {}
end

-- The job's hash (flat, and as a map) if this message is its present one; nil for what is left of another time.
local function job_of(message, msg, queue, priority)
  local key = job_key(message.job_id)
  local flat = call('HGETALL', key)
  local job = as_map(flat)
  if job.status and job.status ~= 'queued' then return nil end
  if not job.seq then
    adopt(message.job_id, message, queue, priority)
    flat = call('HGETALL', key)
    return flat, as_map(flat)
  end
  if job.held or job.msg ~= msg then return nil end
  return flat, job
end

-- The caller knows what a claim changes (`claimed` in the kernel), so the hash goes back as it was before.
local function take_one(flat, job, msg)
  local id = job.job_id
  local at = at_least(job.event_ms or job.created_ts)
  put('status', 'running')
  put('updated_ts', at)
  put('worker_id', WORKER)
  put('claim_version', int((job.claim_version or 0) + 1))
  put('lease_expires_at', LEASE)
  put('heartbeat_at', NOW)
  if START then
    local seq = int((job.event_seq or 1) + 1)
    put('attempt_count', int((job.attempt_count or 0) + 1))
    put('attempt_started_at', at)
    if not job.started_at then put('started_at', at) end
    put('event_seq', seq)
    put('event_ms', emit(id, at, seq, job.progress, 'running', job.stage or '', '{}'))
  elseif job.attempt_started_at then
    put('attempt_started_at', '')
  end
  if job.msg ~= msg then put('msg', msg) end
  save(job_key(id))
  touch(id, job.ttl_s)
  if job.broken_by then call('ZREM', P .. 'jobs:broken', id) end
  n_claimed = n_claimed + 1
  leased[2 * n_claimed - 1], leased[2 * n_claimed] = LEASE, member(job.seq, id)
  claimed[n_claimed + 1] = flat
end

-- Take from one stream until it is empty or the claim is full.
local function take_from(stream, queue, priority)
  local before = n_claimed
  repeat
    local want = LIMIT - n_claimed
    local messages = want > 0 and messages_of(stream, want) or {}
    for _, entry in ipairs(messages) do
      local msg, message = entry[1], as_map(entry[2] or {})
      local flat, job
      if message.job_id then flat, job = job_of(message, msg, queue, priority) end
      if flat then take_one(flat, job, msg) else ack(stream, msg) end
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
if START then
  for i = 2, #claimed do hint('jobs', claimed[i][2]) end
end
flush()
return claimed
