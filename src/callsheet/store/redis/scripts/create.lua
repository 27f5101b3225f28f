-- New jobs: first a check of the whole batch that writes nothing, then the writes. Needs lib and line.
-- A new job is NEW_STRIDE arguments: id, kind, payload, queue, priority, requester, contract, max_attempts, ttl_s,
-- and the rare rest as JSON.

local NEW_STRIDE = 10
-- What this call has decided but not yet written: new ids, holders of unique keys, remembered keys.
local planned = {ids = {}, unique = {}, idem = {}}

local function new_job(i)
  local a = ARGV
  local new = {id = a[i], task = a[i + 1], payload = a[i + 2], queue = a[i + 3], priority = a[i + 4], requester_id = a[i + 5],
    contract = a[i + 6], max_attempts = a[i + 7], ttl_s = a[i + 8], offset = 0, rare = a[i + 9] ~= ''}
  if new.rare then
    for name, value in pairs(cjson.decode(a[i + 9])) do new[name] = value end
  end
  return new
end

local function new_jobs(first, n)
  local batch = {}
  for k = 1, n do batch[k] = new_job(first + (k - 1) * NEW_STRIDE) end
  return batch
end

local function is_uuid(text)
  return #text == 36 and string.match(text, '^%x+%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x+$') ~= nil and string.sub(text, 9, 9) == '-'
end

-- The job that another gateway's key stands for: its id is the value, or the field `job_id` of a hash. It stands for
-- nothing when no such job is there, or when that is another requester's or another contract's.
local function job_of_foreign_key(new, name)
  local id = redis.pcall('GET', name)
  if type(id) ~= 'string' then id = redis.pcall('HGET', name, 'job_id') end
  if type(id) ~= 'string' or not is_uuid(id) then return nil end
  local v = redis.pcall('HMGET', job_key(id), 'task', 'requester_id', 'contract', 'seq')
  if v.err or not v[1] or (v[2] or '') ~= new.requester_id then return nil end
  if (v[3] or (v[4] and OWN or FOREIGN)) ~= new.contract then return nil end
  if v[1] ~= new.task then return nil, {'fault', 'conflict', new.idem} end
  return {id, false}
end

local function known(new)
  local row = planned.idem[new.idem]
  if not row then
    local name = P .. new.idem
    local v = redis.pcall('HMGET', name, 'request_hash', 'job_id', 'response', 'expires_at')
    if v.err then new.idem_replaces = true end
    if v.err or (v[2] and not v[1]) then return job_of_foreign_key(new, name) end
    if not v[1] and new.idem_plain then return job_of_foreign_key(new, P .. new.idem_plain) end
    row = {hash = v[1], id = v[2], response = v[3], expires_at = v[4]}
  end
  if not row.hash or (tonumber(row.expires_at) or 0) <= now then return nil end
  if row.hash ~= new.idem_hash then return nil, {'fault', 'conflict', new.idem} end
  return {row.id, row.response}
end

local function active(key)
  local holder = planned.unique[key]
  if holder == nil then holder = call('GET', P .. 'unique:' .. key) end
  return holder
end

local function exists(id) return planned.ids[id] or call('EXISTS', job_key(id)) == 1 end

-- One EXISTS for all the fresh ids: one each took 5 % of the script.
local function any_exists(fresh)
  local keys, n = {}, 0
  for i, new in ipairs(fresh) do keys[i] = job_key(new.id) end
  in_chunks(keys, function(...) n = n + call('EXISTS', ...) end)
  return n > 0
end

local function plan_faults(plan)
  local taken = any_exists(plan.fresh)
  for _, new in ipairs(plan.fresh) do
    if planned.ids[new.id] or (taken and exists(new.id)) then return {'fault', 'duplicate', new.id} end
    planned.ids[new.id] = true
  end
  for _, new in ipairs(plan.fresh) do
    for _, parent in ipairs(new.depends_on or NOTHING) do
      if not exists(parent) then return {'fault', 'dependency', new.id, parent} end
    end
  end
end

-- The job that this one becomes: itself, or the active holder of its unique key.
local function settle_on(plan, i, new)
  local holder = new.unique_key and active(new.unique_key)
  local id = holder or new.id
  plan.answers[i] = holder and {id, false} or 1
  if new.idem then
    plan.kept[#plan.kept + 1] = {new, id}
    planned.idem[new.idem] = {hash = new.idem_hash, id = id, response = new.idem_response, expires_at = now + new.idem_ttl_s * 1000}
  end
  if holder then return end
  if new.unique_key then planned.unique[new.unique_key] = new.id end
  new.offset = i - 1
  plan.fresh[#plan.fresh + 1] = new
end

-- Decide what each new job becomes; a plan, or nil and the fault for which nothing may be written.
local function check(batch)
  local plan = {batch = batch, answers = {}, fresh = {}, kept = {}}
  for i, new in ipairs(batch) do
    local answer, fault
    if new.idem then answer, fault = known(new) end
    if fault then return nil, fault end
    plan.answers[i] = answer
    if not answer then settle_on(plan, i, new) end
  end
  local fault = plan_faults(plan)
  if fault then return nil, fault end
  return plan
end

-- The fault of a batch that would leave a queue with more queued jobs than `most`.
local function full(fresh, most)
  if most == 0 then return nil end
  local depth = {}
  for _, new in ipairs(fresh) do
    local queue = new.queue
    depth[queue] = (depth[queue] or tonumber(call('HGET', P .. 'jobs:counts', 'queued:' .. queue) or 0)) + 1
    if depth[queue] > most then return {'fault', 'full', queue, int(most)} end
  end
end

-- How many queued jobs a requester has. Those of nobody are all that are queued but the others'.
local function queued_of(requester)
  if requester ~= '' then return call('SCARD', P .. 'jobs:queued:' .. requester) end
  local n, counts = 0, call('HGETALL', P .. 'jobs:counts')
  for i = 1, #counts, 2 do
    if string.sub(counts[i], 1, 7) == 'queued:' then n = n + tonumber(counts[i + 1]) end
  end
  for _, other in ipairs(call('SMEMBERS', P .. 'jobs:queued')) do n = n - call('SCARD', P .. 'jobs:queued:' .. other) end
  return math.max(n, 0)
end

-- Before a requester is refused: jobs whose hash ran out, or that a foreign worker took, are not queued any more.
local function heal_queued(requester)
  if requester == '' then return end
  for _, id in ipairs(call('SRANDMEMBER', P .. 'jobs:queued:' .. requester, 100)) do
    local job = redis.pcall('HGET', job_key(id), 'status')
    if job ~= 'queued' then call('SREM', P .. 'jobs:queued:' .. requester, id) end
  end
end

-- The fault of a batch that would leave a requester with more queued jobs than its quota; `quotas` is JSON, '' for none.
local function over_quota(fresh, quotas)
  if quotas == '' then return nil end
  local limits, more = cjson.decode(quotas), {}
  for _, new in ipairs(fresh) do more[new.requester_id] = (more[new.requester_id] or 0) + 1 end
  for requester, n in pairs(more) do
    local limit = limits[requester]
    if limit and queued_of(requester) + n > limit then
      heal_queued(requester)
      local used = queued_of(requester)
      if used + n > limit then return {'fault', 'quota', requester, int(limit), int(used)} end
    end
  end
end

local function remember(new, id)
  local ttl_ms = new.idem_ttl_s * 1000
  if new.idem_replaces then call('UNLINK', P .. new.idem) end
  call('HSET', P .. new.idem, 'request_hash', new.idem_hash, 'job_id', id, 'response', new.idem_response, 'expires_at', int(now + ttl_ms))
  call('ZADD', P .. 'jobs:idempotency', int(now + ttl_ms), new.idem)
  if REAL then call('PEXPIRE', P .. new.idem, int(ttl_ms)) end
end

-- Block a job on those of its dependencies that are still open; note one that has failed already.
local function wait_for(new, seq, together)
  local blocked, broken = 0, nil
  for _, parent in ipairs(new.depends_on) do
    local status = together[parent] and 'queued' or status_of(read(job_key(parent), {'status', 'dead'}))
    local failed = status == 'failed' or status == 'dead_letter' or status == 'canceled'
    if not (status == 'succeeded' or (failed and new.on_failure == 'run')) then
      if failed then broken = broken or parent end
      call('ZADD', job_key(parent) .. ':dependents', seq, new.id)
      call('HSET', job_key(parent), 'dependents', '1', 'rare', '1')
      blocked = blocked + 1
    end
  end
  return blocked, broken
end

local function held_by(new, run_at)
  if run_at > now then return 'delay' end
  return new.concurrency_key and 'slot' or nil
end

local function put_unless(default, name, value)
  if value and value ~= default then put(name, value) end
end

-- The fields that most jobs lack; a default is not stored.
local function put_rare(new, run_at, held, blocked, broken)
  put_unless(NOW, 'run_at', int(run_at))
  put_unless(nil, 'retry', new.retry)
  put_unless(nil, 'on_dependency_failure', new.on_failure)
  put_unless(nil, 'unique_key', new.unique_key)
  put_unless(nil, 'concurrency_key', new.concurrency_key)
  put_unless(nil, 'correlation_id', new.correlation_id)
  put_unless(nil, 'on_claim', new.on_claim)
  put_unless(nil, 'held', held)
  put_unless('0', 'blocked_by', int(blocked))
  put_unless(nil, 'broken_by', broken)
end

-- The sets that know of a new job, beside the line.
local function list(new, seq, run_at, held, broken)
  local id = new.id
  if held == 'delay' then delay(id, seq, new.queue, int(run_at)) end
  if held == 'slot' then wait_for_slot(id, seq, new.priority, new.concurrency_key) end
  if held == 'dependency' then call('ZADD', BLOCKED, int(run_at), id) end
  if broken then call('ZADD', P .. 'jobs:broken', seq, id) end
  if new.unique_key then call('SET', P .. 'unique:' .. new.unique_key, id) end
  if new.ttl_s ~= '0' and EXPIRES[new.contract] then renew_later(id, new.ttl_s) end
  if new.requester_id ~= '' then call('ZADD', P .. 'jobs:of:' .. new.requester_id, seq, id) end
  count(new.queue, 'queued', 1)
  note_queued(new.requester_id, id, true)
end

local function keep_credentials(new)
  local c = new.credentials
  call('HSET', job_key(new.id) .. ':credentials', 'requester_id', new.requester_id, 'credential_version', c[1], 'storage_creds_encrypted',
    c[2], 'storage_creds_dek_wrapped', c[3], 'storage_creds_kek_id', c[4], 'storage_creds_encryption_version', c[5])
  list_credentials(new.id, c[4])
  put('credentials', '1')
  put('rare', '1')
end

local function create(new, seq, together)
  local id = new.id
  local run_at = new.run_at or (now + (new.delay_ms or 0))
  local held, blocked, broken = held_by(new, run_at), 0, nil
  if new.depends_on then blocked, broken = wait_for(new, seq, together) end
  if blocked > 0 then held = 'dependency' end
  put_unless('', 'requester_id', new.requester_id)
  put_unless(OWN, 'contract', new.contract)
  put_unless('default', 'queue', new.queue)
  put_unless('0', 'priority', new.priority)
  if new.rare then put_rare(new, run_at, held, blocked, broken) end
  if new.unique_key or new.concurrency_key or broken or new.ttl_s ~= '0' then put('rare', '1') end
  if new.credentials then keep_credentials(new) end
  if new.resumed_from then call('HSET', job_key(id) .. ':checkpoints', '~resumed_from', '"' .. new.resumed_from .. '"') end
  if new.run_at then call('HSET', job_key(id) .. ':checkpoints', '~run_at', int(new.run_at)) end
  if not held then put('msg', send(id, new)) end
  call('HSET', job_key(id), 'job_id', id, 'task', new.task, 'payload', new.payload, 'status', 'queued', 'created_ts', NOW,
    'updated_ts', NOW, 'ttl_s', new.ttl_s, 'result', '', 'error', '', 'max_attempts', new.max_attempts, 'seq', seq, rest())
  emit(id, NOW, '1', '0', 'queued', 'gateway.enqueue', '{}')
  touch(id, new.ttl_s, new.contract)
  list(new, seq, run_at, held, broken)
end

-- Write a checked batch: the jobs, then the admission of those with a concurrency key.
local function carry_out(plan)
  local last = call('INCRBY', P .. 'jobs:seq', #plan.batch)
  local together, all, keys = {}, {}, {}
  for _, new in ipairs(plan.fresh) do together[new.id] = true end
  for _, pair in ipairs(plan.kept) do remember(pair[1], pair[2]) end
  for _, new in ipairs(plan.fresh) do
    local seq = padded(last - #plan.batch + 1 + new.offset)
    create(new, seq, together)
    all[#all + 1] = seq
    all[#all + 1] = new.id
    local key = new.concurrency_key
    if key then
      if not keys[key] then keys[#keys + 1] = key end
      keys[key] = new.concurrency_limit
    end
  end
  in_chunks(all, function(...) call('ZADD', P .. 'jobs:all', ...) end)
  for _, key in ipairs(keys) do
    call('HSET', P .. 'jobs:limits', key, int(keys[key]))
    admit(key)
  end
end
