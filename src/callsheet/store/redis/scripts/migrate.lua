-- needs: lib outbox
-- ARGV: this program's schema version. Answers the version that was there, '0' for none; writes ours if it is newer.

local key = P .. 'callsheet:schema'
local have = call('GET', key) or '0'
if tonumber(have) < tonumber(ARGV[3]) then
  -- 2: pending callbacks went from one set to one for each destination
  local due = call('ZRANGE', P .. 'jobs:outbox:due', 0, -1, 'WITHSCORES')
  for i = 1, #due, 2 do
    put_due(call('HGET', P .. 'outbox:' .. id_in(due[i]), 'requester_id') or '', '', due[i + 1], due[i])
  end
  call('DEL', P .. 'jobs:outbox:due')
  -- 3: dead letters have a set of their own
  for _, m in ipairs(call('ZRANGE', P .. 'jobs:ended', 0, -1)) do
    local job = read(job_key(id_in(m)), {'status', 'dead', 'seq'})
    if job.seq and status_of(job) == 'dead_letter' then call('ZADD', P .. 'jobs:dead', job.seq, id_in(m)) end
  end
  -- 4: queued jobs of a requester have a set of their own
  for _, id in ipairs(tonumber(have) > 0 and tonumber(have) < 4 and call('ZRANGE', P .. 'jobs:all', 0, -1) or NOTHING) do
    local job = read(job_key(id), {'status', 'requester_id'})
    if job.status == 'queued' then note_queued(job.requester_id, id, true) end
  end
  flush_queued()
  call('SET', key, ARGV[3])
end
-- A gateway makes the group, so that no worker that comes later and asks for new messages only ('$') misses any.
redis.pcall('XGROUP', 'CREATE', P .. 'jobs:stream', GROUP, '0', 'MKSTREAM')
return have
