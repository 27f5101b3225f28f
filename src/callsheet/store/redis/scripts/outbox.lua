-- Pending callbacks stand in one set for each destination of a requester; `jobs:outbox:destinations` holds these, each
-- by the time of its first callback, so that a backlog costs a claim no more than one callback does.

local DESTINATIONS, LINE = P .. 'jobs:outbox:destinations', P .. 'jobs:outbox:due:'
local function line_of(requester_id, destination) return #requester_id .. ':' .. requester_id .. destination end
local function note_first(line)
  local first = call('ZRANGE', LINE .. line, 0, 0, 'WITHSCORES')
  if first[2] then call('ZADD', DESTINATIONS, first[2], line) else call('ZREM', DESTINATIONS, line) end
end
local function put_due(requester_id, destination, run_at, m)
  local line = line_of(requester_id, destination)
  call('ZADD', LINE .. line, run_at, m)
  note_first(line)
end

-- A callback is {event id, endpoint, body, destination, and the member that tells when the move was, '' for none}.
local function is_told(out) return call('EXISTS', P .. 'outbox:' .. out[1]) == 1 end
local function add_outbox(id, requester_id, out, at)
  if is_told(out) then return end
  local seq, body = padded(call('INCR', P .. 'jobs:outbox:seq')), out[3]
  if out[5] and out[5] ~= '' then body = string.sub(body, 1, -2) .. ',"' .. out[5] .. '":' .. at .. '}' end
  call('HSET', P .. 'outbox:' .. out[1], 'seq', seq, 'event_id', out[1], 'job_id', id, 'requester_id', requester_id,
    'endpoint', out[2], 'body', body, 'status', 'pending', 'run_at', NOW, 'created_at', NOW, 'destination', out[4])
  put_due(requester_id, out[4], NOW, member(seq, out[1]))
  call('ZADD', P .. 'jobs:outbox:all', seq, out[1])
  call('ZADD', job_key(id) .. ':outbox', seq, out[1])
end
