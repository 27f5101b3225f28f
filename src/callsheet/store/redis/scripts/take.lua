-- Taking one job from the line, for the scripts that claim. Needs lib, adopt, again and line.
-- ARGV: worker, limit, lease_ms, start ('1' or '').

local WORKER, LIMIT, START = ARGV[3], tonumber(ARGV[4]), ARGV[6] == '1'
local LEASE = int(now + tonumber(ARGV[5]))
local claimed, n_claimed = {NOW}, 0
local ENDED = {done = true, error = true, canceled = true}

-- One table for all jobs of the batch; only what this script reads is taken out of it before the next.
local job = {}
local function load(flat)
  job.seq, job.msg, job.held, job.status, job.event_ms, job.event_seq, job.claim_version = nil, nil, nil, nil, nil, nil, nil
  job.attempt_count, job.attempt_started_at, job.started_at, job.progress, job.stage, job.broken_by = nil, nil, nil, nil, nil, nil
  job.heartbeat_at, job.contract, job.worker_id, job.ttl_s, job.queue, job.priority = nil, nil, nil, nil, nil, nil
  job.requester_id, job.on_claim = nil, nil
  for i = 1, #flat, 2 do
    if flat[i + 1] ~= '' then job[flat[i]] = flat[i + 1] end
  end
  return flat
end

-- The hash of the message's job, loaded, if this message is its present one or takes that one's place; nil for what is
-- left of another time.
local function job_of(id, fields, msg, stream, queue, priority)
  local key = job_key(id)
  local flat = redis.pcall('HGETALL', key) -- a foreign key of another type must not stop the batch half way
  if flat.err then return nil end
  load(flat)
  local running = job.status == 'running'
  if ENDED[job.status] or (running and job.worker_id) or (job.held and not running) then return nil end
  if job.msg ~= msg and (job.seq or running) and not takes_place(id, job, stream, msg) then return nil end
  if not job.seq then
    adopt(id, as_map(fields), queue, priority)
  elseif running or job.msg ~= msg then -- a foreign worker has had it, and has written of it
    renumber_events(id)
  else
    return flat
  end
  return load(call('HGETALL', key))
end

-- An attempt begins: its event, and what is not at its default after it.
local function start(id, at)
  local seq = NEXT[job.event_seq or '1']
  put_event_ms(job, at, emit(id, at, seq, job.progress, 'running', job.stage or '', '{}'))
  put('event_seq', seq)
  if job.attempt_count then put('attempt_count', NEXT[job.attempt_count]) end
  if job.attempt_started_at and not job.started_at then put('started_at', job.attempt_started_at) end
  if job.heartbeat_at or at ~= NOW then put('heartbeat_at', NOW) end
  put('attempt_started_at', at)
end

-- A claim without a start: what the defaults would no longer tell is written down.
local function hold(at)
  put_event_ms(job, at, job.event_ms or job.updated_ts)
  if not job.attempt_count then put('attempt_count', job.claim_version or '0') end
  if job.attempt_started_at then
    if not job.started_at then put('started_at', job.attempt_started_at) end
    put('attempt_started_at', '')
  end
  put('heartbeat_at', NOW)
end

-- The callback that tells of this claim: `on_claim` is what no claim changes of it (`ClaimCallback` in the kernel).
local function tell(id, at)
  local is_read, parts = pcall(cjson.decode, job.on_claim)
  if not is_read or type(parts) ~= 'table' or #parts ~= 5 then return end -- a foreign program wrote it
  local endpoint, destination, word, stride, rest_of_body = unpack(parts)
  local version = NEXT[job.claim_version or '0']
  local attempts = job.attempt_count or job.claim_version or '0'
  local event_id = 'evt_' .. string.gsub(id, '-', '') .. '_' .. version .. '_' .. word
  local body = '{"event_id":"' .. event_id .. '","sequence":' .. int(version * stride) .. ',"attempt_count":' ..
    (START and NEXT[attempts] or attempts) .. ',"max_attempts":' .. job.max_attempts .. ',"progress":' ..
    (job.progress or '0.0') .. ',"occurred_at":' .. at .. ',' .. rest_of_body
  add_outbox(id, job.requester_id or '', {event_id, endpoint, body, destination}, at)
end

-- The caller knows what a claim changes (`claimed` in the kernel), so the hash goes back as it was before.
local function take_one(id, flat, msg)
  local at = at_least(job.event_ms or job.updated_ts)
  if START then start(id, at) else hold(at) end
  if job.msg ~= msg then put('msg', msg) end
  call('HSET', job_key(id), 'status', 'running', 'updated_ts', at, 'worker_id', WORKER, 'claim_version',
    NEXT[job.claim_version or '0'], 'lease_expires_at', LEASE, rest())
  touch(id, job.ttl_s, job.contract)
  note_queued(job.requester_id, id, false)
  if job.on_claim then tell(id, at) end
  if job.broken_by then call('ZREM', P .. 'jobs:broken', id) end
  n_claimed = n_claimed + 1
  leased[2 * n_claimed - 1], leased[2 * n_claimed] = LEASE, member(job.seq, id)
  claimed[n_claimed + 1] = flat
  if START then hinted_jobs[n_claimed] = id end
end

local function take_entry(entry, stream, queue, priority)
  local msg, fields = entry[1], entry[2] or {}
  local id = fields[1] == 'job_id' and fields[2] ~= '' and fields[2] or as_map(fields).job_id
  local flat = id and job_of(id, fields, msg, stream, queue, priority)
  if flat then take_one(id, flat, msg) else ack(stream, msg) end
end
