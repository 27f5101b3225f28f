-- needs: lib adopt line create move plain outbox
-- ARGV[3] says how many settlements; ARGV[4] is '1' when something could be refused, so that all is checked
-- before anything is written. Then STRIDE arguments each, then the follow-up jobs.
-- Answers {'ok', 1 applied | 2 repeated | 3 stale, …} or {'fault', …}.

local STRIDE, FIRST = 11, 4
local APPLIED, REPEATED, STALE = 1, 2, 3

-- One table for all: a settlement is done with before the next is read.
local s = {}
local function settlement(n)
  local a, i = ARGV, FIRST + (n - 1) * STRIDE
  s.id, s.version, s.to, s.type, s.step, s.data = a[i + 1], a[i + 2], a[i + 3], a[i + 4], a[i + 5], a[i + 6]
  s.progress, s.outcome, s.result, s.error = a[i + 7], a[i + 8], a[i + 9], a[i + 10]
  s.more, s.rare, s.from = NOTHING, a[i + 11] ~= '', 'running'
  if s.rare then
    s.more = cjson.decode(a[i + 11])
    s.from = s.more.from
  end
  return s
end

-- The checks of one settlement, as if those before it were written.
local function check_one(s, statuses, plans, n)
  local job = read(job_key(s.id), FENCE_FIELDS)
  if statuses[s.id] then job.status, job.dead = unpack(statuses[s.id]) end
  if not fence_holds(job, s) then return nil end
  local key = job.unique_key
  if key and s.to == 'queued' and TERMINAL[s.from] then
    local holder = active(key)
    if holder and holder ~= s.id then return {'fault', 'key', s.id, holder} end
    planned.unique[key] = s.id
  elseif key and TERMINAL[s.to] and active(key) == s.id then
    planned.unique[key] = false
  end
  statuses[s.id] = {WORD[s.to], s.to == 'dead_letter'}
  for _, out in ipairs(s.more.outbox or NOTHING) do
    local owner = planned.ids[out[1]] or call('HGET', P .. 'outbox:' .. out[1], 'job_id')
    if owner and owner ~= s.id then return {'fault', 'outbox', out[1]} end
    planned.ids[out[1]] = s.id
  end
  if s.more.follow_ups and s.to ~= 'running' then
    local plan, fault = check(new_jobs(s.more.follow_ups[1], s.more.follow_ups[2]))
    if fault then return fault end
    plans[n] = plan
  end
end

local function repeated(s)
  if s.outcome == '' then return STALE end
  local ended = call('HMGET', job_key(s.id), 'status', 'claim_version', 'outcome')
  if ended[1] == 'done' and ended[2] == s.version and ended[3] == s.outcome then return REPEATED end
  for _, row in ipairs(call('LRANGE', job_key(s.id) .. ':attempts', 0, -1)) do
    local version, outcome = string.match(row, '^(%d+)\31%d+\31%d+\31%d+\31([^\31]*)\31')
    if version == s.version then return outcome == s.outcome and REPEATED or STALE end
  end
  return STALE
end

-- Whether a move that ends no attempt has told of itself already: it was applied before.
local function all_told(s)
  local told = s.more.outbox or NOTHING
  for _, out in ipairs(told) do
    if not is_told(out) then return false end
  end
  return told[1] ~= nil and s.outcome == ''
end

-- What follows from a move: callbacks, follow-up jobs, dependents, the freed slot.
local function consequences(s, job, plan, at)
  if s.more.checkpoint then call('HSET', job_key(s.id) .. ':checkpoints', s.more.checkpoint[1], s.more.checkpoint[2]) end
  for _, out in ipairs(s.more.outbox or NOTHING) do add_outbox(s.id, job.requester_id or '', out, at) end
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
  local v = plain_fields(key)
  if is_plain_success(s, v) then
    succeed_plainly(s, key, v)
    return APPLIED
  end
  local job = job_to_settle(s, key, v)
  if not fence_holds(job, s) then return repeated(s) end
  if all_told(s) then return REPEATED end
  if not job.seq then
    adopt(s.id, NOTHING, 'default', nil)
    job = job_to_settle(s, key, plain_fields(key))
  end
  local was, at = foreign_run(s.id, job), at_least(job.event_ms or job.updated_ts)
  attempts_after(s, job, at)
  body_after(s, job, at)
  if s.to ~= 'running' then move(s, job, at, was) end
  if s.type ~= '' then
    local seq = NEXT[job.event_seq or '1']
    put('event_seq', seq)
    put_event_ms(job, at, emit(s.id, at, seq, job.progress, s.type, s.step, s.data))
  else
    put_event_ms(job, at, job.event_ms or job.updated_ts)
  end
  call('HSET', key, 'status', WORD[s.to], 'updated_ts', at, rest())
  touch(s.id, job.ttl_s, job.contract, TERMINAL[s.to])
  hinted_jobs[#hinted_jobs + 1] = s.id
  consequences(s, job, plan, at)
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
