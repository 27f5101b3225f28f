-- What a settlement leaves in a job's hash, and where the job goes. Needs lib and line.
-- `lease_expires_at`, `heartbeat_at`, `attempt_started_at` and `msg` are true only of a running job (`held`: of a queued
-- one) and are not cleared when it moves on; `worker_id` is, when the job goes back to the queue. Once the job has ended,
-- `updated_ts` is the time of its end.

local TERMINAL = {succeeded = true, failed = true, dead_letter = true, canceled = true}
local FENCE_FIELDS = {'status', 'dead', 'claim_version', 'lease_expires_at', 'unique_key'}
-- Fields that a plain job on its plain way does not need; `rare` in the hash says that one of them matters.
local REST = {'dead', 'held', 'lease_expires_at', 'heartbeat_at', 'started_at', 'ttl_s', 'error', 'lease_losses', 'refresh_count',
  'requester_id', 'unique_key', 'concurrency_key', 'cancel_requested_at', 'broken_by', 'blocked_by', 'dependents', 'contract', 'credentials'}

-- A job as far as most settlements need it, as a list. HMGET of all 29 fields took 13 µs, of these 14 it takes 6.
local function plain_fields(key)
  return call('HMGET', key, 'status', 'claim_version', 'worker_id', 'event_seq', 'event_ms', 'updated_ts', 'progress',
    'attempt_count', 'attempt_started_at', 'seq', 'msg', 'queue', 'priority', 'rare')
end

-- The job as a table, with the rest where it matters. One table for all jobs: what the last one had is taken out.
local job, had_rest = {}, false
local function job_to_settle(s, key, v)
  local status = v[1]
  job.status, job.claim_version, job.worker_id, job.event_seq = status, v[2], v[3] ~= '' and v[3], v[4]
  job.event_ms, job.updated_ts, job.progress, job.attempt_count = v[5] ~= '' and v[5], v[6], v[7], v[8]
  job.attempt_started_at = status == 'running' and v[9] ~= '' and v[9]
  job.seq, job.msg, job.queue, job.priority = v[10], v[11], v[12], v[13]
  local rare = v[14] or s.rare or s.to == 'queued'
  if rare or had_rest then
    local more = rare and call('HMGET', key, unpack(REST)) or NOTHING
    for i, name in ipairs(REST) do job[name] = more[i] and more[i] ~= '' and more[i] or nil end
    had_rest = rare
  end
  return job
end

local function fence_holds(job, s)
  if not job.status or (job.claim_version or '0') ~= s.version or status_of(job) ~= s.from then return false end
  return not s.more.expired_only or (job.status == 'running' and job.lease_expires_at ~= nil and tonumber(job.lease_expires_at) < now)
end

-- The status under which our counts have the job. Of one that a foreign worker runs, they do not know that it was
-- started, and its events are not in our numbers yet.
local function foreign_run(id, job)
  if job.status ~= 'running' or job.worker_id then return status_of(job) end
  job.event_seq = int(math.max(tonumber(job.event_seq or '1'), call('XLEN', events_key(id))))
  return 'queued'
end

local function end_attempt(s, attempt, worker, started_at, at)
  call('RPUSH', job_key(s.id) .. ':attempts', s.version .. '\31' .. attempt .. '\31' .. started_at .. '\31' .. at .. '\31'
    .. s.outcome .. '\31' .. worker .. '\31' .. s.error)
end

local function attempts_after(s, job, at)
  local before = job.attempt_count or job.claim_version or '0'
  local after = before
  if s.more.starts and not job.attempt_started_at then
    after = NEXT[before]
    if s.to == 'running' then
      put('attempt_started_at', at)
    elseif not job.started_at then
      put('started_at', at)
    end
  end
  if s.outcome ~= '' then end_attempt(s, after, job.worker_id or '', job.attempt_started_at or at, at) end
  if s.more.refund then after = int(after - 1) end
  if after ~= before then put('attempt_count', after) end
  if s.more.fresh_attempts then put('max_attempts', int(before + s.more.fresh_attempts)) end
end

local function clear(job, ...)
  for _, name in ipairs({...}) do
    if job[name] then
      put(name, '')
      job[name] = nil
    end
  end
end

local function cancellation_after(s, job, at)
  if TERMINAL[s.from] then
    if job.cancel_requested_at then put('cancel_reason', '') end
    clear(job, 'lease_losses', 'cancel_requested_at', 'blocked_by', 'broken_by')
  elseif s.more.cancel_reason then
    if not job.cancel_requested_at then put('cancel_requested_at', at) end
    put('cancel_reason', s.more.cancel_reason)
  end
end

-- A silence may shorten the lease of a running job; it never extends it.
local function lease_after(s, job)
  local beat = s.more.silence_ms and (job.heartbeat_at or job.attempt_started_at)
  if not beat or s.to ~= 'running' or not job.worker_id or not job.lease_expires_at then return end
  local ends_at = math.min(tonumber(job.lease_expires_at), tonumber(beat) + s.more.silence_ms)
  put('lease_expires_at', int(ends_at))
  leased[#leased + 1] = int(ends_at)
  leased[#leased + 1] = member(job.seq, s.id)
end

local function body_after(s, job, at)
  if s.progress ~= '' and tonumber(s.progress) > tonumber(job.progress or 0) then
    put('progress', s.progress)
    job.progress = s.progress
  end
  if s.result ~= '' then put('result', s.result) end
  if s.to == 'succeeded' then
    if job.error then put('error', '') end
  elseif s.error ~= '' then
    put('error', s.error)
    put('rare', '1')
  end
  if not s.rare then return end
  if s.more.stage then put('stage', s.more.stage) end
  if s.more.refreshed then put('refresh_count', NEXT[job.refresh_count or '0']) end
  if s.more.lease_lost then put('lease_losses', NEXT[job.lease_losses or '0']) end
  cancellation_after(s, job, at)
  lease_after(s, job)
end

-- Where a job that goes back to the queue will wait.
local function back_to_queue(s, job)
  local delay_ms, queue = s.more.delay_ms or 0, job.queue or 'default'
  local run_at = int(now + delay_ms)
  put('worker_id', '')
  put('run_at', run_at)
  if delay_ms > 0 then
    put('held', 'delay')
    delay(s.id, job.seq, queue, run_at)
  elseif job.concurrency_key then
    put('held', 'slot')
    wait_for_slot(s.id, job.seq, job.priority, job.concurrency_key)
  else
    clear(job, 'held')
    local body = call('HMGET', job_key(s.id), 'task', 'payload')
    put('msg', send(s.id, {task = body[1], payload = body[2], queue = queue, priority = job.priority}))
  end
end

-- What prune must forget of a job with a TTL, should its hash be gone by then.
local function epitaph(s, job, status, at)
  return cjson.encode({job.seq, s.id, status, job.queue or 'default', job.requester_id or '', at})
end

local function has_ttl(job)
  job.ttl_s = whole(job.ttl_s, LONGEST_S, '0')
  return job.ttl_s ~= '0'
end

local function revive(s, job)
  if job.unique_key then call('SET', P .. 'unique:' .. job.unique_key, s.id) end
  if not has_ttl(job) then return end
  call('ZREM', P .. 'jobs:ended:ttl', epitaph(s, job, s.from, job.updated_ts))
  if EXPIRES[job.contract] then
    renew_later(s.id, job.ttl_s)
  else
    call('PERSIST', job_key(s.id))
    call('PERSIST', events_key(s.id))
  end
end

local DELETES_CREDENTIALS = {succeeded = true, canceled = true}
local function lay_to_rest(s, job, at)
  if job.credentials and DELETES_CREDENTIALS[s.to] then forget_credentials(s.id) end
  ended[#ended + 1] = at
  ended[#ended + 1] = job.member
  if s.to == 'dead_letter' then call('ZADD', P .. 'jobs:dead', job.seq, s.id) end
  if job.unique_key and call('GET', P .. 'unique:' .. job.unique_key) == s.id then call('DEL', P .. 'unique:' .. job.unique_key) end
  if not has_ttl(job) then return end
  call('ZREM', P .. 'jobs:ttl', s.id)
  call('ZADD', P .. 'jobs:ended:ttl', int(tonumber(at) + tonumber(job.ttl_s) * 1000), epitaph(s, job, s.to, at))
end

local function move(s, job, at, was)
  job.member = member(job.seq, s.id)
  leave(s.id, job)
  if s.to == 'dead_letter' then put('dead', '1') elseif job.dead then put('dead', '') end
  if s.to == 'queued' then
    if TERMINAL[s.from] then revive(s, job) end
    back_to_queue(s, job)
  else
    lay_to_rest(s, job, at)
  end
  if s.to == 'queued' then
    note_queued(job.requester_id, s.id, true)
  elseif was == 'queued' then
    note_queued(job.requester_id or call('HGET', job_key(s.id), 'requester_id'), s.id, false)
  end
  count(job.queue or 'default', was, -1)
  count(job.queue or 'default', s.to, 1)
end
