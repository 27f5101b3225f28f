-- needs: lib line adopt again move rest
-- ARGV: the seq up to which the relay has looked, the message up to which acknowledged ones were cleared. Due jobs and
-- free slots, the TTL of jobs that still wait, jobs that foreign workers have ended, and the relay: a job in line whose
-- message is gone from the stream is sent again, some hundred looked at a time.
-- Answers {how many jobs entered the line, the seq to go on from ('0' after the last), the message likewise ('-')}.

local LOOK = 200

local function sorted(key)
  local names = call('SMEMBERS', key)
  table.sort(names)
  return names
end

local function relay(id)
  local job = read(job_key(id), {'status', 'held', 'msg', 'task', 'payload', 'queue', 'priority', 'concurrency_key', 'worker_id'})
  if (job.status ~= 'queued' and job.status ~= 'running') or not job.msg or not is_with_others(job) then return 0 end
  if #call('XRANGE', stream_of(job.queue or 'default', job.priority), job.msg, job.msg) > 0 then return 0 end
  if job.status == 'running' then -- a foreign worker runs it, and has deleted its message already
    if not end_by_event(id, read(job_key(id), OPEN)) then call('ZADD', P .. 'jobs:acknowledged', 'NX', NOW, job.msg .. ' ' .. id) end
    return 0
  end
  call('HSET', job_key(id), 'msg', send(id, job))
  return 1
end

local n, last = 0, '0'
for _, queue in ipairs(sorted(P .. 'jobs:delayed')) do n = n + line_up_due(queue) end
for _, key in ipairs(sorted(P .. 'jobs:waiting')) do n = n + admit(key) end
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'jobs:ttl', '-inf', NOW, 'LIMIT', 0, 50 * BATCH)) do
  local ttl_s = whole(call('HGET', job_key(id), 'ttl_s'), LONGEST_S, '0')
  if ttl_s ~= '0' and not rest_foreign(id) then
    touch(id, ttl_s, FOREIGN)
    renew_later(id, ttl_s)
  else
    call('ZREM', P .. 'jobs:ttl', id)
  end
end
local looked = call('ZRANGEBYSCORE', P .. 'jobs:all', '(' .. ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, LOOK)
for i = 1, #looked, 2 do n = n + relay(looked[i]) end
if #looked == 2 * LOOK then last = int(tonumber(looked[#looked])) end
local cleared = clear_acknowledged(P .. 'jobs:stream', 'default', ARGV[4], LOOK)
flush()
return {n, last, cleared}
