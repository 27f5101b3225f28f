-- needs: lib behind
-- ARGV: limit, then the queue, priority and message seen last ('' at the start). Answers {{job_id, queue, claim_version,
-- priority, message}, …}: what the streams hold behind the last delivery, by queue and priority. Writes nothing.

local LIMIT, QUEUE, PRIORITY, LAST, reply = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), ARGV[6], {}

local function list(queue, priority, after)
  local stream = stream_of(queue, tostring(priority))
  if call('XLEN', stream) == 0 then return end
  local from = later(delivered(stream), after)
  while #reply < LIMIT do
    local entries = call('XRANGE', stream, '(' .. from, '+', 'COUNT', LIMIT - #reply)
    for _, entry in ipairs(entries) do
      local id = as_map(entry[2]).job_id
      local job = id and redis.pcall('HMGET', job_key(id), 'status', 'msg', 'claim_version') or NOTHING
      if job[1] == 'queued' and (not job[2] or job[2] == '' or job[2] == entry[1]) then
        reply[#reply + 1] = {id, queue, job[3] or '0', priority, entry[1]}
      end
      from = entry[1]
    end
    if #entries == 0 then return end
  end
end

local function priorities_of(queue)
  local found, seen = {}, {}
  for _, text in ipairs(call('ZRANGE', P .. 'jobs:priorities:' .. queue, 0, -1)) do
    found[#found + 1], seen[tonumber(text)] = tonumber(text), true
  end
  if not seen[0] then found[#found + 1] = 0 end
  table.sort(found, function(a, b) return a > b end)
  return found
end

local queues, seen = {'default'}, {default = true}
for _, field in ipairs(call('HKEYS', P .. 'jobs:counts')) do
  local status, queue = string.match(field, '^([^:]*):(.*)$')
  if status == 'queued' and not seen[queue] then queues[#queues + 1], seen[queue] = queue, true end
end
table.sort(queues)
for _, queue in ipairs(queues) do
  for _, priority in ipairs(queue >= QUEUE and priorities_of(queue) or NOTHING) do
    if queue > QUEUE or priority < PRIORITY then
      list(queue, priority, '0-0')
    elseif priority == PRIORITY then
      list(queue, priority, LAST)
    end
  end
end
return reply
