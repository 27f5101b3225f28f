-- needs: lib line document outbox
-- ARGV: kind, id, body and expected version of the mark, before, after, since, the tolerance. Answers {jobs, leases,
-- callbacks}, how many were moved by the step of the clock; nothing when another writer of the mark was faster.

local BEFORE, AFTER, SINCE, TOLERANCE = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local SHIFT = AFTER - BEFORE
if put_document(ARGV[3], ARGV[4], ARGV[5], ARGV[6]) == 0 then return {} end

-- Forward: alive before the step, and not beaten since it. Back: its last beat has yet to come.
local function is_old(lease, beat)
  if SHIFT > 0 then return lease >= BEFORE and (beat or 0) <= BEFORE end
  return (beat or lease) > AFTER + TOLERANCE
end

-- Move the leases that a set lists by the time they end, each with its last beat, so that the next step knows it, too.
-- `key_of` is where a member's hash is.
local function move_leases(set, key_of)
  local moved, members = 0, call('ZRANGE', set, 0, -1)
  for _, m in ipairs(members) do
    local row = read(key_of(m), {'lease_expires_at', 'heartbeat_at', 'attempt_started_at'})
    local lease = tonumber(row.lease_expires_at or '')
    local beat = tonumber(row.heartbeat_at or row.attempt_started_at or '')
    if lease and is_old(lease, beat) then
      call('HSET', key_of(m), 'lease_expires_at', int(lease + SHIFT))
      if beat then call('HSET', key_of(m), 'heartbeat_at', int(beat + SHIFT)) end
      call('ZADD', set, int(lease + SHIFT), m)
      moved = moved + 1
    end
  end
  return moved
end

-- Move the jobs of a set that are later than now, were last written since, and not asked for at that very moment.
local function move_delays(set, id_of)
  local moved, found = {}, call('ZRANGEBYSCORE', set, '(' .. int(AFTER), '+inf', 'WITHSCORES')
  for i = 1, #found, 2 do
    local m, run_at = found[i], int(tonumber(found[i + 1]))
    local key = job_key(id_of(m))
    local written = tonumber(call('HGET', key, 'updated_ts') or '')
    if written and written >= SINCE and call('HGET', key .. ':checkpoints', '~run_at') ~= run_at then
      local due = int(tonumber(run_at) + SHIFT)
      call('HSET', key, 'run_at', due)
      moved[#moved + 1] = due
      moved[#moved + 1] = m
    end
  end
  in_chunks(moved, function(...) call('ZADD', set, ...) end)
  return #moved / 2
end

local function move_callbacks()
  local moved = 0
  for _, line in ipairs(call('ZRANGE', DESTINATIONS, 0, -1)) do
    local found = call('ZRANGEBYSCORE', LINE .. line, '(' .. int(AFTER), '+inf', 'WITHSCORES')
    for i = 1, #found, 2 do
      local due = int(tonumber(found[i + 1]) + SHIFT)
      call('HSET', P .. 'outbox:' .. id_in(found[i]), 'run_at', due)
      call('ZADD', LINE .. line, due, found[i])
      moved = moved + 1
    end
    note_first(line)
  end
  return moved
end

local leases = move_leases(P .. 'jobs:leases', function(m) return job_key(id_in(m)) end)
local callbacks = move_leases(P .. 'jobs:outbox:leased', function(m) return P .. 'outbox:' .. id_in(m) end)
if SHIFT > 0 then return {0, leases, callbacks} end
local jobs = move_delays(BLOCKED, function(m) return m end)
for _, queue in ipairs(call('SMEMBERS', P .. 'jobs:delayed')) do jobs = jobs + move_delays(P .. 'jobs:delayed:' .. queue, id_in) end
for _, m in ipairs(call('ZRANGEBYSCORE', P .. 'jobs:acknowledged', '(' .. int(AFTER), '+inf')) do
  call('ZADD', P .. 'jobs:acknowledged', int(AFTER), m)
end
return {jobs, leases, callbacks + move_callbacks()}
