-- Jobs that a foreign worker has ended, or has let go of: it tells the hash and the events, and our sets learn of it here.
-- Needs lib, line, move, adopt and again.

local RESTING = {'status', 'dead', 'seq', 'queue', 'priority', 'msg', 'updated_ts', 'ttl_s', 'requester_id', 'unique_key',
  'concurrency_key', 'dependents', 'credentials', 'error'}
local TERMINAL_EVENT = {done = true, error = true, canceled = true}

local OPEN = {'status', 'worker_id', 'held', 'msg', 'again', 'seq', 'queue', 'priority', 'task', 'payload', 'concurrency_key',
  'updated_ts', 'ttl_s', 'result', 'error', 'claim_version', 'attempt_count', 'started_at', 'attempt_started_at', 'requester_id'}

-- The last event of a job, and its time.
local function last_event(id)
  local last = call('XREVRANGE', events_key(id), '+', '-', 'COUNT', 1)[1]
  if not last then return NOTHING, '0' end
  return as_map(last[2]), string.match(last[1], '^%d+')
end

local function last_event_type(id) return last_event(id).type or '' end

-- Move a job to those that have ended, if it has and our sets do not know it; true when nothing is left to do for it.
local function rest_foreign(id)
  local job = read(job_key(id), RESTING)
  local s = {id = id, to = status_of(job)}
  if not TERMINAL[s.to] then return false end
  if not job.seq then return true end -- never one of ours
  job.member = member(job.seq, id)
  if call('ZSCORE', P .. 'jobs:ended', job.member) then return true end
  local queue, at = job.queue or 'default', whole(job.updated_ts, LATEST_MS, NOW)
  local event_seq, event_ms = number_events(id, at)
  if not TERMINAL_EVENT[last_event_type(id)] then -- it died in between: whoever tails the events waits for this one
    event_seq = NEXT[event_seq]
    event_ms = emit(id, at_least(event_ms), event_seq, '0', WORD[s.to], 'housekeeping', job.error and as_json(job.error) or '{}')
  end
  call('HSET', job_key(id), 'updated_ts', at, 'event_seq', event_seq, 'event_ms', event_ms)
  count(queue, call('ZREM', P .. 'jobs:leases', job.member) == 1 and 'running' or 'queued', -1)
  count(queue, s.to, 1)
  note_queued(job.requester_id, id, false)
  if job.msg then ack(stream_of(queue, job.priority), job.msg) end
  if job.concurrency_key then call('SREM', P .. 'jobs:slots:' .. job.concurrency_key, id) end
  lay_to_rest(s, job, at)
  hinted_jobs[#hinted_jobs + 1] = id
  if job.dependents then release_dependents(id, s.to) end
  if job.concurrency_key then admit(job.concurrency_key) end
  return true
end

-- A job whose keys ran out after a foreign worker had ended it, and before anybody of ours looked.
local function forget_expired(id, queue)
  local seq = call('ZSCORE', P .. 'jobs:all', id)
  if not seq then return end
  local m = member(padded(seq), id)
  forget_credentials(id)
  call('ZREM', P .. 'jobs:all', id)
  call('ZREM', P .. 'jobs:ttl', id)
  count(queue, call('ZREM', P .. 'jobs:leases', m) == 1 and 'running' or 'queued', -1)
end

-- Whether none of our workers has an open job, and none will get it by itself: it is a foreign worker's, or in line.
local function is_with_others(job) return not (job.status == 'running' and job.worker_id) and not (job.status ~= 'running' and job.held) end

-- A foreign worker may end its job by the terminal event alone. To those who followed the job that was its end: the hash is
-- made to say so, with what the event tells. True if it was so.
local function end_by_event(id, job)
  local event, ms = last_event(id)
  if not TERMINAL_EVENT[event.type] then return false end
  local set, data = {'status', event.type, 'updated_ts', tonumber(ms) <= now and ms or NOW}, event.data
  local field = event.type == 'done' and 'result' or event.type == 'error' and 'error'
  if field and not job[field] and data and data ~= '{}' then
    set[#set + 1] = field
    set[#set + 1] = as_json(data)
  end
  call('HSET', job_key(id), unpack(set))
  if call('TTL', job_key(id)) < 0 then touch(id, ttl_of(job_key(id), job.ttl_s), FOREIGN, true) end
  return rest_foreign(id)
end

-- Put a job that a foreign worker has put back in line again, with a message of our own.
local function line_up_again(id, job, message, queue)
  if not job.seq then
    adopt(id, message, queue)
    job = read(job_key(id), OPEN)
  else
    renumber_events(id)
  end
  call('HSET', job_key(id), 'status', 'queued', 'updated_ts', NOW, 'msg', send(id, job))
  call('HDEL', job_key(id), 'again')
end

-- A message that was acknowledged though its job has not ended. What its worker may still be doing is waited for: `expired`
-- looks after those listed here.
local function left_open(stream, queue, msg, message)
  local id = message.job_id
  local job = read(job_key(id), OPEN)
  if not is_with_others(job) then return end
  if (job.msg and job.msg ~= msg) or end_by_event(id, job) then return ack(stream, msg) end
  if job.again == msg then
    line_up_again(id, job, message, queue)
    return ack(stream, msg)
  end
  call('ZADD', P .. 'jobs:acknowledged', 'NX', NOW, msg .. ' ' .. id)
end

-- Messages that a foreign worker has acknowledged and, as the contract has it, not deleted: before the last one
-- delivered, and pending with nobody. Looks at some after `from`; answers where to go on, '-' after the last.
local function clear_acknowledged(stream, queue, from, look)
  local last
  for _, group in ipairs(redis.pcall('XINFO', 'GROUPS', stream)) do
    local info = as_map(group)
    if info.name == GROUP then last = info['last-delivered-id'] end
  end
  local entries = last and call('XRANGE', stream, from, last, 'COUNT', look) or NOTHING
  for _, entry in ipairs(entries) do
    local msg, id = entry[1], as_map(entry[2]).job_id
    if not is_pending(stream, msg) then
      local gone = not id or call('EXISTS', job_key(id)) == 0
      if id and gone then forget_expired(id, queue) end
      if gone or call('TYPE', job_key(id)).ok ~= 'hash' or rest_foreign(id) then
        ack(stream, msg)
      else
        left_open(stream, queue, msg, as_map(entry[2]))
      end
    end
  end
  return #entries == look and '(' .. entries[look][1] or '-'
end
