-- The line of claimable jobs: who enters it, and when. Needs lib.

local BLOCKED = P .. 'jobs:blocked' -- jobs held by a dependency, by run_at
local LINE_FIELDS = {'task', 'payload', 'queue', 'priority', 'concurrency_key'}

-- Put a message on the job's stream; its id. The caller writes it to the hash as `msg`.
local function send(id, job)
  local queue = job.queue or 'default'
  if job.priority and job.priority ~= '0' then call('ZADD', P .. 'jobs:priorities:' .. queue, job.priority, job.priority) end
  if job.concurrency_key then call('SADD', P .. 'jobs:slots:' .. job.concurrency_key, id) end
  hint_queue(queue)
  return call('XADD', stream_of(queue, job.priority), '*', 'job_id', id, 'task', job.task or '', 'payload', job.payload or '')
end

-- Bring a held job into line.
local function line_up(id)
  local job = read(job_key(id), LINE_FIELDS)
  if not job.task then return end -- its hash is gone; what is left of it must not become a job
  call('HSET', job_key(id), 'msg', send(id, job))
  call('HDEL', job_key(id), 'held')
end

local function delay(id, seq, queue, run_at)
  call('ZADD', P .. 'jobs:delayed:' .. queue, run_at, member(seq, id))
  call('SADD', P .. 'jobs:delayed', queue)
end

local function wait_for_slot(id, seq, priority, key)
  call('ZADD', P .. 'jobs:waiting:' .. key, -(tonumber(priority or '0')), member(seq, id))
  call('SADD', P .. 'jobs:waiting', key)
end

-- Let jobs of a concurrency key into line while it has free slots, by priority, then seq; how many.
local function admit(key)
  local waiting = P .. 'jobs:waiting:' .. key
  local free = tonumber(call('HGET', P .. 'jobs:limits', key) or 0) - call('SCARD', P .. 'jobs:slots:' .. key)
  if free <= 0 then return 0 end
  local members = call('ZRANGE', waiting, 0, free - 1)
  for _, m in ipairs(members) do
    line_up(id_in(m))
    call('ZREM', waiting, m)
  end
  if call('EXISTS', waiting) == 0 then call('SREM', P .. 'jobs:waiting', key) end
  return #members
end

-- Bring a queue's due jobs into line, in order of their time; how many were due.
local function line_up_due(queue)
  local delayed = P .. 'jobs:delayed:' .. queue
  local due = call('ZRANGEBYSCORE', delayed, '-inf', NOW, 'LIMIT', 0, BATCH)
  if #due == 0 then
    if call('EXISTS', delayed) == 0 then call('SREM', P .. 'jobs:delayed', queue) end
    return 0
  end
  local keys, listed = {}, {}
  for _, m in ipairs(due) do
    local id = id_in(m)
    local job = read(job_key(id), {'concurrency_key', 'priority'})
    local key = job.concurrency_key
    if not key then
      line_up(id)
    else
      wait_for_slot(id, string.sub(m, 1, 15), job.priority, key)
      call('HSET', job_key(id), 'held', 'slot')
      if not listed[key] then
        listed[key] = true
        keys[#keys + 1] = key
      end
    end
  end
  in_chunks(due, function(...) call('ZREM', delayed, ...) end)
  if call('EXISTS', delayed) == 0 then call('SREM', P .. 'jobs:delayed', queue) end
  for _, key in ipairs(keys) do admit(key) end
  return #due
end

-- Take a job out of wherever it waits, runs or rests, before it moves elsewhere.
local function leave(id, job)
  local queue, key = job.queue or 'default', job.concurrency_key
  if job.status == 'running' or (job.status == 'queued' and not job.held) then
    if job.msg then ack(stream_of(queue, job.priority), job.msg) end
    if key then call('SREM', P .. 'jobs:slots:' .. key, id) end
    if job.status == 'running' then unleased[#unleased + 1] = job.member end
  elseif job.status ~= 'queued' then
    flush_ended()
    call('ZREM', P .. 'jobs:ended', job.member)
    call('ZREM', P .. 'jobs:dead', id)
  elseif job.held == 'delay' then
    call('ZREM', P .. 'jobs:delayed:' .. queue, job.member)
  elseif job.held == 'slot' then
    call('ZREM', P .. 'jobs:waiting:' .. key, job.member)
  elseif job.held == 'dependency' then
    call('ZREM', BLOCKED, id)
  end
end

local CHILD_FIELDS = {'status', 'held', 'blocked_by', 'run_at', 'created_ts', 'concurrency_key', 'on_dependency_failure', 'broken_by', 'seq', 'queue', 'priority'}

local function unblock(child, job)
  local key = job_key(child)
  if tonumber(job.blocked_by) > 1 then
    call('HINCRBY', key, 'blocked_by', -1)
    return
  end
  call('HDEL', key, 'blocked_by')
  call('ZREM', BLOCKED, child)
  local run_at = job.run_at or job.created_ts
  if tonumber(run_at) > now then
    call('HSET', key, 'held', 'delay')
    delay(child, job.seq, job.queue or 'default', run_at)
  elseif job.concurrency_key then
    call('HSET', key, 'held', 'slot')
    wait_for_slot(child, job.seq, job.priority, job.concurrency_key)
    admit(job.concurrency_key)
  else
    line_up(child)
  end
end

-- Tell the jobs that wait for `parent` that it has ended.
local function release_dependents(parent, status)
  local dependents = job_key(parent) .. ':dependents'
  for _, child in ipairs(call('ZRANGE', dependents, 0, -1)) do
    local job = read(job_key(child), CHILD_FIELDS)
    if job.status == 'queued' and job.held == 'dependency' then
      if status ~= 'succeeded' and job.on_dependency_failure ~= 'run' then
        if not job.broken_by then call('HSET', job_key(child), 'broken_by', parent, 'rare', '1') end
        call('ZADD', P .. 'jobs:broken', job.seq, child)
      else
        call('ZREM', dependents, child)
        unblock(child, job)
      end
    end
  end
end
