-- needs: lib line adopt again move rest
-- ARGV: limit, foreign_idle_ms, then pairs of stream name and cursor (the last pending id that was looked at).
-- Answers {hashes…, {stream, cursor, …}}.
-- Deliveries of foreign workers that were silent for foreign_idle_ms become claims of ours whose lease is over,
-- so that the kernel decides on them like on any lost lease. So do jobs whose foreign worker has acknowledged them
-- (jobs:acknowledged), has not ended them, and has written nothing for as long.

local LIMIT, IDLE_MS, LOOK, DOOR_MS = tonumber(ARGV[3]), ARGV[4], 100, 15000
local cursors, reply, known = {}, {}, {}
for i = 5, #ARGV, 2 do cursors[ARGV[i]] = ARGV[i + 1] end

-- Make a claim of ours, whose lease is over, of a job that a foreign worker has lost. `by`: its message, that worker, and
-- the line that the job stood in.
local function lose(id, job, message, by)
  if not job.seq then
    adopt(id, message, by.queue, by.priority)
    job = read(job_key(id), OPEN)
  end
  local over = int(now - 1)
  local event_seq, event_ms = number_events(id, job.updated_ts or NOW)
  call('HSET', job_key(id), 'status', 'running', 'updated_ts', NOW, 'worker_id', by.consumer, 'msg', by.msg, 'lease_expires_at', over,
    'heartbeat_at', over, 'claim_version', NEXT[job.claim_version or '0'], 'attempt_count', job.attempt_count or job.claim_version or '0',
    'started_at', job.started_at or job.attempt_started_at or '', 'attempt_started_at', '', 'event_seq', event_seq, 'event_ms', event_ms)
  leased[#leased + 1] = over
  leased[#leased + 1] = member(job.seq, id)
  count(by.queue, 'queued', -1)
  note_queued(job.requester_id, id, false)
  count(by.queue, 'running', 1)
end

local function lost_delivery(stream, queue, priority, entry)
  local msg, consumer = entry[1], entry[2]
  local found = call('XRANGE', stream, msg, msg)[1]
  local message = found and as_map(found[2]) or {}
  local id = message.job_id
  if not id then return ack(stream, msg) end
  if call('TYPE', job_key(id)).ok ~= 'hash' and call('EXISTS', job_key(id)) == 1 then return ack(stream, msg) end
  local job = read(job_key(id), OPEN)
  if job.status == 'running' and job.worker_id and job.msg == msg then
    if job.seq and not call('ZSCORE', P .. 'jobs:leases', member(job.seq, id)) then
      leased[#leased + 1] = NOW
      leased[#leased + 1] = member(job.seq, id)
    end
    return
  end
  if rest_foreign(id) or (job.msg and job.msg ~= msg) or end_by_event(id, job) then return ack(stream, msg) end
  lose(id, job, message, {msg = msg, consumer = consumer, queue = queue, priority = priority})
end

-- When anything was last written of a job; what is said to be of the future does not count.
local function last_written(id, job)
  local _, ms = last_event(id)
  local at = tonumber(whole(job.updated_ts, LATEST_MS, '0'))
  return math.max(at <= now and at or 0, tonumber(ms) <= now and tonumber(ms) or 0)
end

-- A job whose message was acknowledged a while ago; false when its worker is to be given more time.
local function acknowledged_too_early(msg, id)
  if call('TYPE', job_key(id)).ok ~= 'hash' or rest_foreign(id) then return true end
  local job = read(job_key(id), OPEN)
  local queue, priority = job.queue or 'default', job.priority
  local stream = stream_of(queue, priority)
  if not is_with_others(job) or (job.msg and job.msg ~= msg) or is_pending(stream, msg) then return true end
  if end_by_event(id, job) then return true end
  if now - last_written(id, job) < tonumber(IDLE_MS) then return false end
  local found = call('XRANGE', stream, msg, msg)[1]
  lose(id, job, found and as_map(found[2]) or NOTHING, {msg = msg, consumer = 'unknown', queue = queue, priority = priority})
  return true
end

local function sweep(queue, priority)
  local stream = stream_of(queue, priority)
  local from = cursors[stream] and '(' .. cursors[stream] or '-'
  local entries = redis.pcall('XPENDING', stream, GROUP, 'IDLE', IDLE_MS, from, '+', LOOK)
  cursors[stream] = nil
  if entries.err then return end
  for _, entry in ipairs(entries) do lost_delivery(stream, queue, priority, entry) end
  if #entries == LOOK then cursors[stream] = entries[LOOK][1] end
end

-- What was handed to a worker of ours at its door, and not claimed since: that takes it a moment, unless it was killed.
-- It has not begun, so it goes straight back into line. Running jobs are not among these: heartbeats keep their messages
-- from lying idle.
local function left_at_a_door(stream, msg)
  local found = call('XRANGE', stream, msg, msg)[1]
  local message = found and as_map(found[2]) or NOTHING
  local id = message.job_id
  local kind = id and call('TYPE', job_key(id)).ok
  if kind ~= 'hash' and kind ~= 'none' then return end -- `sweep` has a look at it
  local job = read(job_key(id), OPEN)
  if job.status == 'running' or (job.msg and job.msg ~= msg) or job.held or TERMINAL[status_of(job)] then return end
  line_up_again(id, job, message, 'default')
  ack(stream, msg)
end

local function sweep_doors()
  local stream = stream_of('default')
  for _, worker in ipairs(call('SMEMBERS', P .. 'jobs:doors')) do
    local entries = redis.pcall('XPENDING', stream, GROUP, 'IDLE', DOOR_MS, '-', '+', LOOK, worker)
    for _, entry in ipairs(entries.err and NOTHING or entries) do left_at_a_door(stream, entry[1]) end
  end
end

sweep_doors()
known['default'] = true
for _, field in ipairs(call('HKEYS', P .. 'jobs:counts')) do known[string.match(field, '^[^:]*:(.*)$')] = true end
for queue in pairs(known) do
  sweep(queue)
  for _, priority in ipairs(call('ZRANGE', P .. 'jobs:priorities:' .. queue, 0, -1)) do sweep(queue, priority) end
end
for _, m in ipairs(call('ZRANGEBYSCORE', P .. 'jobs:acknowledged', '-inf', int(now - tonumber(IDLE_MS)), 'LIMIT', 0, LOOK)) do
  local msg, id = string.match(m, '^(%S+) (.*)$')
  if acknowledged_too_early(msg, id) then
    call('ZREM', P .. 'jobs:acknowledged', m)
  else
    call('ZADD', P .. 'jobs:acknowledged', int(last_written(id, read(job_key(id), OPEN))), m)
  end
end
in_chunks(leased, function(...) call('ZADD', P .. 'jobs:leases', ...) end)
leased = {}

for _, m in ipairs(call('ZRANGEBYSCORE', P .. 'jobs:leases', '-inf', '(' .. NOW, 'LIMIT', 0, LIMIT)) do
  local flat = call('HGETALL', job_key(id_in(m)))
  -- A hash that ran out under its TTL comes back from its message; until then it is not in the way here.
  if rest_foreign(id_in(m)) then call('ZREM', P .. 'jobs:leases', m)
  elseif #flat > 0 then reply[#reply + 1] = flat else call('ZADD', P .. 'jobs:leases', int(now + 60000), m) end
end
local looked = {}
for stream, cursor in pairs(cursors) do
  looked[#looked + 1] = stream
  looked[#looked + 1] = cursor
end
reply[#reply + 1] = looked
flush()
return reply
