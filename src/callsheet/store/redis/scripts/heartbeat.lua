-- needs: lib
-- ARGV: lease_ms, the same for jobs that are to be cancelled, then job_id and claim_version of each claim. Answers 0 stale, 1 held, 2 held and to be cancelled.
-- Our messages' idle time starts again (JUSTID: no delivery counted), so that no foreign worker takes them over.

local LEASE, LAST, reply, renewed = int(now + tonumber(ARGV[3])), int(now + tonumber(ARGV[4])), {}, {}
for i = 5, #ARGV, 2 do
  local id, version = ARGV[i], ARGV[i + 1]
  local job = read(job_key(id), {'status', 'claim_version', 'cancel_requested_at', 'seq', 'msg', 'queue', 'priority', 'worker_id'})
  if job.status == 'running' and job.claim_version == version then
    local ends_at = job.cancel_requested_at and LAST or LEASE
    call('HSET', job_key(id), 'lease_expires_at', ends_at, 'heartbeat_at', NOW)
    leased[#leased + 1] = ends_at
    leased[#leased + 1] = member(job.seq, id)
    if job.msg then
      local stream, worker = stream_of(job.queue or 'default', job.priority), job.worker_id or ''
      renewed[stream] = renewed[stream] or {}
      renewed[stream][worker] = renewed[stream][worker] or {}
      table.insert(renewed[stream][worker], job.msg)
    end
    reply[#reply + 1] = job.cancel_requested_at and 2 or 1
  else
    reply[#reply + 1] = 0
  end
end
for stream, workers in pairs(renewed) do
  for worker, ids in pairs(workers) do
    for i = 1, #ids, CHUNK do
      local args = {unpack(ids, i, math.min(i + CHUNK - 1, #ids))}
      args[#args + 1] = 'JUSTID'
      redis.pcall('XCLAIM', stream, GROUP, worker, 0, unpack(args))
    end
  end
end
flush()
return reply
