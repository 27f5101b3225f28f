-- needs: lib line
-- Due jobs and free slots, and the TTL of jobs that still wait. Answers how many jobs entered the line.

local function sorted(key)
  local names = call('SMEMBERS', key)
  table.sort(names)
  return names
end

local n = 0
for _, queue in ipairs(sorted(P .. 'jobs:delayed')) do n = n + line_up_due(queue) end
for _, key in ipairs(sorted(P .. 'jobs:waiting')) do n = n + admit(key) end
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'jobs:ttl', '-inf', NOW, 'LIMIT', 0, BATCH)) do
  local ttl_s = call('HGET', job_key(id), 'ttl_s')
  if ttl_s then
    touch(id, ttl_s)
    call('ZADD', P .. 'jobs:ttl', int(now + tonumber(ttl_s) * 500), id)
  else
    call('ZREM', P .. 'jobs:ttl', id)
  end
end
flush()
return n
