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
