-- needs: lib adopt line create
-- ARGV[3] says how many settlements; ARGV[4] is '1' when something could be refused, so that all is checked
-- before anything is written. Then STRIDE arguments each, then the follow-up jobs.
-- Answers {'ok', 1 applied | 2 repeated | 3 stale, …} or {'fault', …}.

local STRIDE, FIRST = 15, 4
local FIELDS = {'status', 'dead', 'claim_version', 'event_seq', 'event_ms', 'created_ts', 'progress', 'stage', 'attempt_count',
  'attempt_started_at', 'started_at', 'worker_id', 'msg', 'seq', 'queue', 'priority', 'held', 'lease_expires_at', 'ended_at',
  'ttl_s', 'error', 'lease_losses', 'refresh_count', 'requester_id', 'unique_key', 'concurrency_key', 'cancel_requested_at',
  'broken_by', 'blocked_by', 'dependents'}
local FENCE_FIELDS = {'status', 'dead', 'claim_version', 'lease_expires_at', 'unique_key'}
local APPLIED, REPEATED, STALE = 1, 2, 3
local TERMINAL = {succeeded = true, failed = true, dead_letter = true, canceled = true}

local function settlement(n)
  local a, i = ARGV, FIRST + (n - 1) * STRIDE
  local flags = a[i + 5]
  local s = {id = a[i + 1], version = a[i + 2], from = a[i + 3], to = a[i + 4], type = a[i + 6], step = a[i + 7],
    data = a[i + 8], stage = a[i + 9], progress = a[i + 10], delay_ms = a[i + 11], outcome = a[i + 12], result = a[i + 13],
    error = a[i + 14]}
  if flags ~= '' then
    s.starts, s.refund = string.find(flags, 's', 1, true), string.find(flags, 'r', 1, true)
    s.lease_lost, s.refreshed = string.find(flags, 'l', 1, true), string.find(flags, 'f', 1, true)
    s.expired_only = string.find(flags, 'e', 1, true)
  end
  s.more = a[i + 15] ~= '' and cjson.decode(a[i + 15]) or {}
  return s
end

local function fence_holds(job, s)
  if not job.status or status_of(job) ~= s.from or (job.claim_version or '0') ~= s.version then return false end
  return not s.expired_only or (job.lease_expires_at ~= nil and tonumber(job.lease_expires_at) < now)
end

-- The checks of one settlement, as if those before it were written.
local function check_one(s, statuses, plans, n)
  local job = read(job_key(s.id), FENCE_FIELDS)
  if statuses[s.id] then job.status, job.dead, job.lease_expires_at = unpack(statuses[s.id]) end
  if not fence_holds(job, s) then return nil end
  local key = job.unique_key
  if key and s.to == 'queued' and TERMINAL[s.from] then
    local holder = active(key)
    if holder and holder ~= s.id then return {'fault', 'key', s.id, holder} end
    planned.unique[key] = s.id
  elseif key and TERMINAL[s.to] and active(key) == s.id then
    planned.unique[key] = false
  end
  statuses[s.id] = {WORD[s.to], s.to == 'dead_letter', s.to == 'running' and job.lease_expires_at or nil}
  for _, out in ipairs(s.more.outbox or {}) do
    if planned.ids[out[1]] or call('EXISTS', P .. 'outbox:' .. out[1]) == 1 then return {'fault', 'outbox', out[1]} end
    planned.ids[out[1]] = true
  end
  if s.more.follow_ups and s.to ~= 'running' then
    local plan, fault = check(new_jobs(s.more.follow_ups[1], s.more.follow_ups[2]))
    if fault then return fault end
    plans[n] = plan
  end
end

local function repeated(s)
  if s.outcome == '' then return STALE end
  for _, row in ipairs(call('LRANGE', job_key(s.id) .. ':attempts', 0, -1)) do
    local version, outcome = string.match(row, '^(%d+)\31%d+\31%d+\31%d+\31([^\31]*)\31')
    if version == s.version then return outcome == s.outcome and REPEATED or STALE end
  end
  return STALE
end

-- A foreign worker had this job: its events are not in our numbers yet, and our counts have it as queued.
local function foreign_run(id, job)
  if job.status ~= 'running' or job.lease_expires_at then return status_of(job) end
  job.event_seq = int(math.max(tonumber(job.event_seq or '1'), call('XLEN', events_key(id))))
  return 'queued'
end

local function end_attempt(s, job, attempt, at)
  call('RPUSH', job_key(s.id) .. ':attempts', table.concat({s.version, int(attempt), job.attempt_started_at or at, at, s.outcome,
    job.worker_id or '', s.error}, '\31'))
end

local function attempts_after(s, job, at, put)
  local before = tonumber(job.attempt_count or '0')
  local after = before
  if s.starts then
    if not job.attempt_started_at then after = after + 1 end
    if not job.started_at then put('started_at', at) end
    if s.to == 'running' and not job.attempt_started_at then put('attempt_started_at', at) end
  end
  if s.outcome ~= '' then end_attempt(s, job, after, at) end
  if s.refund then after = after - 1 end
  if after ~= before then put('attempt_count', int(after)) end
  if s.more.fresh_attempts then put('max_attempts', int(before + s.more.fresh_attempts)) end
end

local function clear(job, put, ...)
  for _, name in ipairs({...}) do
    if job[name] then put(name, '') end
  end
end

local function body_after(s, job, at, put)
  if s.stage ~= '' and string.sub(s.stage, 2) ~= (job.stage or '') then put('stage', string.sub(s.stage, 2)) end
  if s.progress ~= '' and tonumber(s.progress) > tonumber(job.progress or '0') then
    put('progress', s.progress)
    job.progress = s.progress
  end
  if s.refreshed then put('refresh_count', int(tonumber(job.refresh_count or '0') + 1)) end
  if s.result ~= '' then put('result', s.result) end
  if s.to == 'succeeded' then clear(job, put, 'error') elseif s.error ~= '' then put('error', s.error) end
  if job.ended_at then
    clear(job, put, 'lease_losses', 'cancel_requested_at', 'blocked_by', 'broken_by')
    if job.cancel_requested_at then put('cancel_reason', '') end
    job.broken_by = nil
    return
  end
  if s.lease_lost then put('lease_losses', int(tonumber(job.lease_losses or '0') + 1)) end
  if s.more.cancel_reason then
    if not job.cancel_requested_at then put('cancel_requested_at', at) end
    put('cancel_reason', s.more.cancel_reason)
  end
end

-- Where a job that goes back to the queue will wait.
local function back_to_queue(s, job, put)
  local delay_ms, queue = tonumber(s.delay_ms), job.queue or 'default'
  local run_at = int(now + delay_ms)
  clear(job, put, 'worker_id', 'ended_at')
  put('run_at', run_at)
  if delay_ms > 0 then
    put('held', 'delay')
    delay(s.id, job.seq, queue, run_at)
  elseif job.concurrency_key then
    put('held', 'slot')
    wait_for_slot(s.id, job.seq, job.priority, job.concurrency_key)
  else
    clear(job, put, 'held')
    local body = call('HMGET', job_key(s.id), 'task', 'payload')
    put('msg', send(s.id, {task = body[1], payload = body[2], queue = queue, priority = job.priority}))
    return
  end
  clear(job, put, 'msg')
end

local function seal(s, job, at, put)
  put('ended_at', at)
  clear(job, put, 'held', 'msg')
  ended[member(job.seq or 0, s.id)] = at
  if not job.ttl_s or job.ttl_s == '0' then return end
  call('ZREM', P .. 'jobs:ttl', s.id)
  local gone = cjson.encode({job.seq or '0', s.id, s.to, job.queue or 'default', job.requester_id or '', at})
  call('ZADD', P .. 'jobs:ended:ttl', int(tonumber(at) + tonumber(job.ttl_s) * 1000), gone)
end

-- Bring an ended job's keys back to life.
local function revive(id, job)
  if job.unique_key then call('SET', P .. 'unique:' .. job.unique_key, id) end
  if not job.ttl_s or job.ttl_s == '0' then return end
  local gone = cjson.encode({job.seq or '0', id, status_of(job), job.queue or 'default', job.requester_id or '', job.ended_at})
  call('ZREM', P .. 'jobs:ended:ttl', gone)
  call('ZADD', P .. 'jobs:ttl', int(now + tonumber(job.ttl_s) * 500), id)
end

local function move(s, job, at, put)
  if s.to == 'running' then return end
  leave(s.id, job)
  clear(job, put, 'lease_expires_at', 'attempt_started_at')
  if job.lease_expires_at then put('heartbeat_at', '') end
  if s.to == 'queued' then
    if TERMINAL[s.from] then revive(s.id, job) end
    back_to_queue(s, job, put)
  else
    seal(s, job, at, put)
    if job.unique_key and call('GET', P .. 'unique:' .. job.unique_key) == s.id then call('DEL', P .. 'unique:' .. job.unique_key) end
  end
end

local function add_outbox(s, job)
  for _, out in ipairs(s.more.outbox or {}) do
    local seq = int(call('INCR', P .. 'jobs:outbox:seq'))
    call('HSET', P .. 'outbox:' .. out[1], 'seq', seq, 'event_id', out[1], 'job_id', s.id, 'requester_id', job.requester_id or '',
      'endpoint', out[2], 'body', out[3], 'status', 'pending', 'run_at', NOW, 'created_at', NOW)
    call('ZADD', P .. 'jobs:outbox:due', NOW, member(seq, out[1]))
    call('ZADD', P .. 'jobs:outbox:all', seq, out[1])
    call('ZADD', job_key(s.id) .. ':outbox', seq, out[1])
  end
end

-- What follows from a move: callbacks, follow-up jobs, dependents, the freed slot.
local function consequences(s, job, plan)
  if s.more.checkpoint then call('HSET', job_key(s.id) .. ':checkpoints', s.more.checkpoint[1], s.more.checkpoint[2]) end
  add_outbox(s, job)
  if s.to == 'running' then return end
  if job.broken_by then
    if s.to == 'queued' then call('ZADD', P .. 'jobs:broken', job.seq, s.id) else call('ZREM', P .. 'jobs:broken', s.id) end
  end
  if plan then carry_out(plan) end
  if TERMINAL[s.to] and job.dependents then release_dependents(s.id, s.to) end
  if job.concurrency_key then admit(job.concurrency_key) end
end

local function settle(s, plan)
  local key = job_key(s.id)
  local job = read(key, FIELDS)
  if not fence_holds(job, s) then return repeated(s) end
  if not job.seq then
    adopt(s.id, {}, 'default', nil)
    job = read(key, FIELDS)
  end
  local was = foreign_run(s.id, job)
  local at = at_least(job.event_ms or job.created_ts)
  local set = {'status', WORD[s.to], 'updated_ts', at}
  local function put(name, value) set[#set + 1] = name; set[#set + 1] = value end
  if (s.to == 'dead_letter') ~= (job.dead ~= nil) then put('dead', s.to == 'dead_letter' and '1' or '') end
  attempts_after(s, job, at, put)
  body_after(s, job, at, put)
  move(s, job, at, put)
  if s.type ~= '' then
    local seq = int(tonumber(job.event_seq or '1') + 1)
    put('event_seq', seq)
    put('event_ms', emit(s.id, at, seq, job.progress, s.type, s.step, s.data))
  end
  call('HSET', key, unpack(set))
  touch(s.id, job.ttl_s)
  count(job.queue or 'default', was, -1)
  count(job.queue or 'default', s.to, 1)
  hint('jobs', s.id)
  consequences(s, job, plan)
  return APPLIED
end

local n, plans = tonumber(ARGV[3]), {}
if ARGV[4] == '1' then
  local statuses = {}
  for i = 1, n do
    local fault = check_one(settlement(i), statuses, plans, i)
    if fault then return fault end
  end
end
local reply = {'ok'}
for i = 1, n do reply[i + 1] = settle(settlement(i), plans[i]) end
flush()
return reply
