-- Shared by every script, prepended at load. KEYS[1] is the prefix; every key is derived from it (see wire.py for the
-- catalogue). ARGV[1] is the consumer: this process.

local call, P, ME, GROUP = redis.call, KEYS[1], ARGV[1], 'workers'
local MESSAGES, OVER, QUEUES, PROCESSES = P .. 'messages', P .. 'over', P .. 'queues', P .. 'processes'
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function int(n) return string.format('%.0f', n) end
local function stream_of(queue) return P .. 'stream:' .. queue end

local function form_group(stream, queue)
  local made = redis.pcall('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
  if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then error(made.err) end
  call('SADD', QUEUES, queue)
end

local function is_there(stream, id) return #call('XRANGE', stream, id, id) > 0 end

-- The message of a stay as it is known, if it is in its stream: id and stream.
local function message_of(enqueue_id)
  local known = call('HGET', MESSAGES, enqueue_id)
  if not known then return nil end
  local id, queue = string.match(known, '^(%S+) (.*)$')
  if is_there(stream_of(queue), id) then return id, stream_of(queue) end
  return nil
end

local function drop(stream, id)
  redis.pcall('XACK', stream, GROUP, id)
  call('XDEL', stream, id)
end

-- A key of another type, or a full memory, spoils one step and not those of other jobs.
local function safely(step, ...)
  local ok, answer = pcall(step, ...)
  return ok and answer or ''
end
