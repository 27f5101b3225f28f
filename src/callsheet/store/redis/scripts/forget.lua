-- A job that goes for good, with all that hangs on it; callbacks stay until they are delivered. Needs lib.

local function forget_event(event_id, seq)
  call('DEL', P .. 'outbox:' .. event_id)
  call('ZREM', P .. 'jobs:outbox:all', event_id)
  call('ZREM', P .. 'jobs:outbox:ended', member(seq, event_id))
end

local function forget_outbox(id)
  local key = job_key(id) .. ':outbox'
  for _, event_id in ipairs(call('ZRANGE', key, 0, -1)) do
    local row = call('HMGET', P .. 'outbox:' .. event_id, 'status', 'seq')
    if row[1] ~= 'pending' and row[1] ~= 'delivering' then
      forget_event(event_id, row[2] or '')
      call('ZREM', key, event_id)
    end
  end
end

local function forget(gone)
  local id, key = gone.id, job_key(gone.id)
  forget_outbox(id)
  forget_credentials(id)
  call('UNLINK', key, key .. ':events', key .. ':attempts', key .. ':checkpoints', key .. ':dependents')
  call('ZREM', P .. 'jobs:all', id)
  call('ZREM', P .. 'jobs:ended', member(gone.seq, id))
  call('ZREM', P .. 'jobs:dead', id)
  if gone.packed then call('ZREM', P .. 'jobs:ended:ttl', gone.packed) end
  if gone.requester_id ~= '' then call('ZREM', P .. 'jobs:of:' .. gone.requester_id, id) end
  count(gone.queue, gone.status, -1)
end

-- What `forget` must know of an ended job, from its fields and the time of its end as `jobs:ended` has it.
local ENDED = {'status', 'dead', 'queue', 'requester_id', 'seq', 'ttl_s', 'claim_version'}
local function gone_of(id, job, at)
  local gone = {seq = job.seq, id = id, status = status_of(job), queue = job.queue or 'default', requester_id = job.requester_id or '', at = at}
  if job.ttl_s and job.ttl_s ~= '0' then gone.packed = cjson.encode({gone.seq, id, gone.status, gone.queue, gone.requester_id, gone.at}) end
  return gone
end
