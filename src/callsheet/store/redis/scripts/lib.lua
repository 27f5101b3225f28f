-- Shared by every script, prepended at load, after a line of the contracts: `OWN` is the one of jobs that name none,
-- `FOREIGN` that of other programs' jobs, `EXPIRES` has those whose open jobs expire. KEYS[1] is the store's prefix; every key is derived from it and so
-- lies in its slot (see keys.py for the catalogue). ARGV[1] is the hint channel, ARGV[2] the time ('' = our clock).
-- Numbers are carried as strings: Lua would write 1.7e+12. Missing and empty fields read as nil.

local call, P, CHANNEL, NOW, REAL = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[2] == ''
if REAL then
  local t = call('TIME')
  NOW = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
end
local now = tonumber(NOW)
local GROUP, CHUNK, BATCH, NOTHING = 'workers', 500, 1000, {}
local WORD = {queued = 'queued', running = 'running', succeeded = 'done', failed = 'error', dead_letter = 'error', canceled = 'canceled'}

local function int(n) return string.format('%.0f', n) end
-- One more than a number written as text; counters of a batch are mostly the same few.
local NEXT = setmetatable({}, {__index = function(known, text)
  known[text] = int(tonumber(text) + 1)
  return known[text]
end})
-- A whole number of anybody's making, else the default: EXPIRE of -1 deletes, and of 'inf' stops the script.
local LATEST_MS, LONGEST_S = 253402300799999, 316224000
local function whole(text, most, default)
  local n = tonumber(text)
  if n and n >= 0 and n <= most then return int(math.floor(n)) end
  return default
end
local function job_key(id) return P .. 'job:' .. id end
local function events_key(id) return P .. 'job:' .. id .. ':events' end

-- A seq is text of 15 digits, so that members of equal score are ordered by it.
local function padded(seq) return string.format('%015d', seq) end
local function member(seq, id) return seq .. ':' .. id end
local function id_in(m) return string.sub(m, 17) end

local function stream_of(queue, priority)
  if priority and priority ~= '0' then return P .. 'jobs:stream#' .. priority .. ':' .. queue end
  return P .. (queue == 'default' and 'jobs:stream' or 'jobs:stream:' .. queue)
end

-- The later of our time and the job's last event: a job's times never run backwards.
local function at_least(ms)
  if ms and (tonumber(ms) or 0) > now then return ms end
  return NOW
end

local function read(key, names)
  local values, found = call('HMGET', key, unpack(names)), {}
  for i = 1, #names do
    local v = values[i]
    if v and v ~= '' then found[names[i]] = v end
  end
  return found
end

local function as_map(flat)
  local map = {}
  for i = 1, #flat, 2 do
    if flat[i + 1] ~= '' then map[flat[i]] = flat[i + 1] end
  end
  return map
end

local function in_chunks(list, write)
  for i = 1, #list, CHUNK do write(unpack(list, i, math.min(i + CHUNK - 1, #list))) end
end

-- The fields of the one HSET that a job gets, beside those its script names. The table is used again and again:
-- growing a new one for each job took 7 of a claim's 50 µs.
local fields, n_fields = {}, 0
local function put(name, value)
  fields[n_fields + 1], fields[n_fields + 2] = name, value
  n_fields = n_fields + 2
end
-- What was put, as the last arguments of the HSET.
local function rest()
  local n = n_fields
  n_fields = 0
  return unpack(fields, 1, n)
end

-- `event_ms` is stored only where it is not `updated_ts`.
local function put_event_ms(job, at, ms)
  if ms ~= at then put('event_ms', ms) elseif job.event_ms then put('event_ms', '') end
end

-- The kernel's word for the status in a hash.
local function status_of(job)
  if job.status == 'done' then return 'succeeded' end
  if job.status == 'error' then return job.dead and 'dead_letter' or 'failed' end
  return job.status or 'queued'
end

-- What is written once at the end of a script: counts, acknowledgements, leases, ends, the hint.
local moved, acked, leased, unleased, ended = {}, {}, {}, {}, {}
local hinted, hinted_jobs = {}, {}

local function count(queue, status, by)
  local field = status .. ':' .. queue
  moved[field] = (moved[field] or 0) + by
end

-- Which jobs of a requester are queued: what this script changes of it, by job; the last word counts. Jobs without a
-- requester are in no such set, and pay nothing for it.
local waits, any_waits = {}, false
local function note_queued(requester, id, is_queued)
  if not requester or requester == '' then return end
  waits[id], any_waits = {requester, is_queued}, true
end

local function flush_queued()
  local into, from = {}, {}
  for id, pair in pairs(waits) do
    local side = pair[2] and into or from
    local ids = side[pair[1]]
    if not ids then ids = {}; side[pair[1]] = ids end
    ids[#ids + 1] = id
  end
  for requester, ids in pairs(into) do
    in_chunks(ids, function(...) call('SADD', P .. 'jobs:queued:' .. requester, ...) end)
    call('SADD', P .. 'jobs:queued', requester)
  end
  for requester, ids in pairs(from) do
    in_chunks(ids, function(...) call('SREM', P .. 'jobs:queued:' .. requester, ...) end)
    if call('EXISTS', P .. 'jobs:queued:' .. requester) == 0 then call('SREM', P .. 'jobs:queued', requester) end
  end
end

local function ack(stream, msg)
  local ids = acked[stream]
  if not ids then ids = {}; acked[stream] = ids end
  ids[#ids + 1] = msg
end

local function hint_queue(name)
  if not hinted[name] then
    hinted[name] = true
    hinted[#hinted + 1] = name
  end
end

-- Many jobs are told of as `*`, any of them; too many queues as anything.
local function publish()
  local queues, jobs = #hinted, #hinted_jobs
  if queues + jobs == 0 then return end
  local message = '{}'
  if queues <= 150 then
    local names = {}
    for i = 1, queues do names[i] = hinted[i] end
    if jobs > 150 then hinted_jobs = {'*'} end
    message = cjson.encode({queues = queues > 0 and names or nil, jobs = jobs > 0 and hinted_jobs or nil})
  end
  call('PUBLISH', CHANNEL, message)
end

local function flush_ended()
  in_chunks(ended, function(...) call('ZADD', P .. 'jobs:ended', ...) end)
  ended = {}
end

local function flush()
  for field, by in pairs(moved) do
    if by ~= 0 and call('HINCRBY', P .. 'jobs:counts', field, int(by)) == 0 then call('HDEL', P .. 'jobs:counts', field) end
  end
  if any_waits then flush_queued() end
  in_chunks(leased, function(...) call('ZADD', P .. 'jobs:leases', ...) end)
  in_chunks(unleased, function(...) call('ZREM', P .. 'jobs:leases', ...) end)
  flush_ended()
  for stream, ids in pairs(acked) do
    in_chunks(ids, function(...)
      redis.pcall('XACK', stream, GROUP, ...)
      call('XDEL', stream, ...)
    end)
  end
  publish()
end

-- One event with the explicit id ms-seq. A foreign writer's `*` ids may be ahead of ours: then follow the last one.
local function emit(id, ms, seq, progress, kind, step, data)
  local key = events_key(id)
  local done = redis.pcall('XADD', key, ms .. '-' .. seq, 'type', kind, 'ts', ms, 'step', step, 'data', data, 'progress', progress or '0')
  if type(done) == 'string' then return ms end
  local last = call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not last then error(done.err) end
  local last_ms = tonumber(string.match(last[1], '^%d+'))
  ms = int(math.max(last_ms + 1, tonumber(ms)))
  call('XADD', key, ms .. '-' .. seq, 'type', kind, 'ts', ms, 'step', step, 'data', data, 'progress', progress or '0')
  return ms
end

-- A job's encrypted credentials, and the sets that tell by which KEK they are wrapped.
local function list_credentials(id, kek)
  call('ZADD', P .. 'jobs:credentials:' .. kek, 0, id)
  call('SADD', P .. 'jobs:credentials', kek)
end

local function unlist_credentials(id, kek)
  call('ZREM', P .. 'jobs:credentials:' .. kek, id)
  if call('EXISTS', P .. 'jobs:credentials:' .. kek) == 0 then call('SREM', P .. 'jobs:credentials', kek) end
end

local function forget_credentials(id)
  local key = job_key(id) .. ':credentials'
  local kek = call('HGET', key, 'storage_creds_kek_id')
  if not kek then return end
  call('UNLINK', key)
  unlist_credentials(id, kek)
end

-- The TTL: on the hash and on the events, refreshed by every write where open jobs expire. Other jobs get it when they end,
-- so that none is lost while it waits. An open job's keys live for LEAST_OPEN_S at least, and get it anew when half
-- of that is over: a sweep comes by each second, or so, too late for a TTL of one or two.
-- Under a test's clock, real time must not take the keys away: a day at least.
local LEAST_OPEN_S = 10
local function touch(id, ttl_s, contract, ended)
  ttl_s = whole(ttl_s, LONGEST_S, '0')
  if ttl_s ~= '0' and (ended or EXPIRES[contract]) then
    local least = not REAL and 86400 or ended and 1 or LEAST_OPEN_S
    if tonumber(ttl_s) < least then ttl_s = int(least) end
    call('EXPIRE', job_key(id), ttl_s)
    call('EXPIRE', events_key(id), ttl_s)
  end
end

-- List an open job of a contract whose open jobs expire for the renewal of its TTL.
local function renew_later(id, ttl_s)
  call('ZADD', P .. 'jobs:ttl', int(now + math.max(tonumber(ttl_s), LEAST_OPEN_S) * 500), id)
end
