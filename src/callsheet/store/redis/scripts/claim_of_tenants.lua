-- needs: lib adopt again line outbox take behind
-- ARGV: worker, limit, lease_ms, start ('1' or ''), queue, page, how many tenants, these, then pairs of a priority and the
-- last message of its stream that is known to be of others. Answers {now, {'1' when the queue was walked to its end, then
-- such pairs as they are now}, hashes…}: the jobs in order, as they were before the claim.
-- A group delivers messages in their order alone, so a tenant's are found by a walk behind the last delivery, at most
-- `page` of them in one call. A message whose job is taken here goes at once: nobody else is to be given it.

local QUEUE, LOOK, TENANTS, looked, past = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), 0, {}
local mine = {}
for i = 10, 9 + TENANTS do mine[ARGV[i]] = true end
for i = 10 + TENANTS, #ARGV, 2 do past[ARGV[i]] = ARGV[i + 1] end

local function is_mine(id)
  local requester = redis.pcall('HGET', job_key(id), 'requester_id')
  if type(requester) == 'table' then return false end -- a foreign key of another type
  return mine[requester or ''] == true
end

-- Take what is ours of one stream; true when its end was reached, and not the limit or the end of the page.
local function walk(priority)
  local stream = stream_of(QUEUE, priority)
  if call('XLEN', stream) == 0 then return true end
  local from, before, entries = later(delivered(stream), past[priority] or '0-0'), n_claimed, nil
  repeat
    entries = call('XRANGE', stream, '(' .. from, '+', 'COUNT', math.min(200, LOOK - looked))
    for _, entry in ipairs(entries) do
      if n_claimed >= LIMIT then break end
      local msg, fields = entry[1], entry[2] or {}
      local id = fields[1] == 'job_id' and fields[2] ~= '' and fields[2] or as_map(fields).job_id
      if id and is_mine(id) then
        local flat = job_of(id, fields, msg, stream, QUEUE, priority)
        if flat then take_one(id, flat, msg) end
        ack(stream, msg)
      end
      from, looked = msg, looked + 1
    end
  until #entries == 0 or n_claimed >= LIMIT or looked >= LOOK
  past[priority] = from
  local n = n_claimed - before
  count(QUEUE, 'queued', -n)
  count(QUEUE, 'running', n)
  return #entries == 0 and n_claimed < LIMIT
end

local function priorities()
  local found, seen = call('ZREVRANGE', P .. 'jobs:priorities:' .. QUEUE, 0, -1), false
  for _, priority in ipairs(found) do seen = seen or priority == '0' end
  if not seen then found[#found + 1] = '0' end
  table.sort(found, function(a, b) return tonumber(a) > tonumber(b) end)
  return found
end

local function walk_all()
  for _, priority in ipairs(priorities()) do
    if not walk(priority) then return false end
  end
  return true
end

local ended = true
if call('SISMEMBER', P .. 'jobs:paused', QUEUE) == 0 then
  ended = walk_all()
  if (ended or n_claimed >= LIMIT) and line_up_due(QUEUE) > 0 and n_claimed < LIMIT then ended = walk_all() end
end
flush()
local places = {ended and '1' or ''}
for priority, msg in pairs(past) do
  places[#places + 1] = priority
  places[#places + 1] = msg
end
table.insert(claimed, 2, places)
return claimed
