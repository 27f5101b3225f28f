-- needs: lib
-- ARGV: consumer, queue, ms after which a stream that nobody uses is forgotten. Deletes consumers whose process is gone
-- and that have nothing pending, and then a stream that is empty. Answers with how many consumers were deleted.

local QUEUE, FORGET_MS, deleted, left = ARGV[2], tonumber(ARGV[3]), 0, 0
local STREAM = stream_of(QUEUE)

local function as_map(flat)
  local map = {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end

local function tidy()
  for _, flat in ipairs(call('XINFO', 'CONSUMERS', STREAM, GROUP)) do
    local consumer = as_map(flat)
    local alive = call('ZSCORE', PROCESSES, consumer.name) and consumer.idle < FORGET_MS
    if consumer.pending == 0 and not alive then
      call('XGROUP', 'DELCONSUMER', STREAM, GROUP, consumer.name)
      deleted = deleted + 1
    else
      left = left + 1
    end
  end
  local info = as_map(call('XINFO', 'STREAM', STREAM))
  local last_ms = tonumber(string.match(info['last-generated-id'], '^%d+'))
  if left == 0 and info.length == 0 and now - last_ms > FORGET_MS then
    call('DEL', STREAM)
    call('SREM', QUEUES, QUEUE)
  end
end

if call('EXISTS', STREAM) == 0 then call('SREM', QUEUES, QUEUE) else safely(tidy) end
return deleted
