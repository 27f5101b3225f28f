-- Jobs that a foreign worker has ended: it tells the hash and the events, and our sets learn of it here. Needs lib, line,
-- move and adopt.

local RESTING = {'status', 'dead', 'seq', 'queue', 'priority', 'msg', 'updated_ts', 'ttl_s', 'requester_id', 'unique_key',
  'concurrency_key', 'dependents', 'credentials', 'error'}
local TERMINAL_EVENT = {done = true, error = true, canceled = true}

local function last_event_type(id)
  local last = call('XREVRANGE', events_key(id), '+', '-', 'COUNT', 1)[1]
  return last and as_map(last[2]).type or ''
end

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
    if #call('XPENDING', stream, GROUP, msg, msg, 1) == 0 then
      local gone = not id or call('EXISTS', job_key(id)) == 0
      if id and gone then forget_expired(id, queue) end
      if gone or call('TYPE', job_key(id)).ok ~= 'hash' or rest_foreign(id) then ack(stream, msg) end
    end
  end
  return #entries == look and '(' .. entries[look][1] or '-'
end
