-- needs: lib
-- ARGV: worker_id, limit. Answers with the hashes of the running jobs that a worker holds, by seq.

local WORKER, LIMIT, found, reply = ARGV[3], tonumber(ARGV[4]), {}, {}
for _, m in ipairs(call('ZRANGE', P .. 'jobs:leases', 0, -1)) do
  local job = call('HMGET', job_key(id_in(m)), 'status', 'worker_id')
  if job[1] == 'running' and job[2] == WORKER then found[#found + 1] = m end
end
table.sort(found)
for i = 1, math.min(LIMIT, #found) do reply[i] = call('HGETALL', job_key(id_in(found[i]))) end
return reply
