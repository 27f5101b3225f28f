-- Jobs that a foreign gateway wrote (the contract's nine fields and a message, none of ours). Needs lib.

local JOB_TTL_S = '86400' -- client.py puts the setting here
local FOREIGN_FIELDS = {'job_id', 'task', 'payload', 'status', 'created_ts', 'updated_ts', 'ttl_s', 'result', 'error'}

-- NaN, Infinity and hex numbers are no JSON; that cjson reads them is a setting of the whole server.
local function as_json(text)
  cjson.decode_invalid_numbers(false)
  local fine = text and pcall(cjson.decode, text)
  cjson.decode_invalid_numbers(true)
  return fine and text or cjson.encode({_raw = text or ''})
end

-- What a foreign job's TTL is: as its hash says, else as long as that hash has left to live, else the gateway's setting.
local function ttl_of(key, text)
  local ttl_s = whole(text, LONGEST_S, '0')
  if ttl_s ~= '0' then return ttl_s end
  local left = call('TTL', key)
  return left > 0 and int(left) or JOB_TTL_S
end

-- The events that are there already count: ours go on from the last of them.
local function number_events(id, ms)
  local key = events_key(id)
  local n = call('XLEN', key)
  if n == 0 then return '1', emit(id, ms, '1', '0', 'queued', 'gateway.enqueue', '{}') end
  return int(n), string.match(call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1][1], '^%d+')
end

-- Give a foreign job the fields, the number and the place in our sets that it lacks. What its hash does not say
-- comes from its message. A job of ours whose hash has run out is in our sets still, and keeps its number.
local function adopt(id, message, queue, priority)
  local key = job_key(id)
  local job = read(key, FOREIGN_FIELDS)
  local created = whole(job.created_ts, LATEST_MS, NOW)
  local seq = call('ZSCORE', P .. 'jobs:all', id)
  local counted = seq
  seq = padded(seq or call('INCR', P .. 'jobs:seq'))
  local event_seq, event_ms = number_events(id, created)
  local ttl_s = ttl_of(key, job.ttl_s)
  local set = {'job_id', id, 'task', job.task or message.task or '', 'payload', as_json(job.payload or message.payload),
    'status', job.status == 'running' and 'running' or 'queued', 'created_ts', created, 'updated_ts', whole(job.updated_ts, LATEST_MS, NOW),
    'ttl_s', ttl_s, 'result', job.result or '', 'error', job.error or '', 'seq', seq,
    'contract', FOREIGN, 'event_seq', event_seq, 'event_ms', event_ms, 'queue', queue, 'priority', priority or '0'}
  call('HSET', key, 'rare', '1', unpack(set))
  touch(id, ttl_s, FOREIGN)
  renew_later(id, ttl_s)
  call('ZADD', P .. 'jobs:all', seq, id)
  if not counted then
    count(queue, 'queued', 1)
  elseif call('ZREM', P .. 'jobs:leases', member(seq, id)) == 1 then
    count(queue, 'running', -1)
    count(queue, 'queued', 1)
  end
end
