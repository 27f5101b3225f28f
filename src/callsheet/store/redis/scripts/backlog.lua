-- needs: lib
-- Answers {{queue, ready, held, running, age of the oldest in ms or ''}, …}. Writes nothing, and reads one job for each
-- priority of a queue. A message is in its stream from the moment its job is in line until the job has left it, so
-- that `ready` and `running` are what the stream holds, and what is queued or runs without a message is held. That
-- the group knows of more deliveries than we of running jobs means foreign workers; that it knows of fewer, that some
-- were taken for a tenant out of the middle of the line: their messages are gone.

local function since(stream, after)
  local entry = call('XRANGE', stream, after, '+', 'COUNT', 1)[1]
  if not entry then return nil end
  local put_at = tonumber(string.match(entry[1], '^%d+'))
  local id = as_map(entry[2]).job_id
  local job = id and redis.pcall('HMGET', job_key(id), 'created_ts', 'run_at') or NOTHING
  local created, run_at = tonumber(job[1] or ''), tonumber(job[2] or '')
  return created and math.max(created, run_at or 0) or put_at
end

local function older(a, b) return a and b and math.min(a, b) or a or b end

-- Messages of a stream, those delivered, and since when the first of the others has been ready.
local function line_of(stream)
  local length, delivered, after = call('XLEN', stream), 0, '-'
  if length == 0 then return 0, 0, nil end
  for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do
    local info = as_map(group)
    if info.name == GROUP then delivered, after = info.pending, '(' .. info['last-delivered-id'] end
  end
  return length, delivered, since(stream, after)
end

local function lines_of(queue)
  local length, delivered, first = line_of(stream_of(queue))
  for _, priority in ipairs(call('ZRANGE', P .. 'jobs:priorities:' .. queue, 0, -1)) do
    local n, taken, ready_at = line_of(stream_of(queue, priority))
    length, delivered, first = length + n, delivered + taken, older(first, ready_at)
  end
  return length, delivered, first
end

local function backlog_of(queue, queued, counted)
  local length, delivered, first = lines_of(queue)
  local delayed = P .. 'jobs:delayed:' .. queue
  local due, later = call('ZCOUNT', delayed, '-inf', NOW), call('ZCOUNT', delayed, '(' .. NOW, '+inf')
  if due > 0 then first = older(first, tonumber(call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])) end
  local running = math.max(counted, delivered)
  local ready = math.max(0, length - delivered) + due
  local held = math.max(queued + math.min(counted, delivered) - length - due, later)
  local age = ready > 0 and first and int(math.max(0, now - first)) or ''
  return {queue, ready, held, running, age}
end

local queues, reply = {default = {}}, {}
local fields = call('HGETALL', P .. 'jobs:counts')
for i = 1, #fields, 2 do
  local status, queue = string.match(fields[i], '^([^:]*):(.*)$')
  queues[queue] = queues[queue] or {}
  queues[queue][status] = tonumber(fields[i + 1])
end
for queue, of in pairs(queues) do
  local row = backlog_of(queue, of.queued or 0, of.running or 0)
  if row[2] + row[3] + row[4] > 0 then reply[#reply + 1] = row end
end
return reply
