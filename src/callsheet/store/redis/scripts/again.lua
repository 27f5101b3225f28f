-- A second message of a job that has one: so a foreign worker puts a job back (XADD of the same fields, XACK of its own).
-- Needs lib and adopt.

local function is_pending(stream, msg)
  local found = redis.pcall('XPENDING', stream, GROUP, msg, msg, 1)
  return not found.err and #found > 0
end

-- Whether one message came after another, by their ids.
local function is_later(a, b)
  local a_ms, a_n = string.match(a, '^(%d+)%-?(%d*)')
  local b_ms, b_n = string.match(b, '^(%d+)%-?(%d*)')
  if tonumber(a_ms) ~= tonumber(b_ms) then return tonumber(a_ms) > tonumber(b_ms) end
  return (tonumber(a_n) or 0) > (tonumber(b_n) or 0)
end

-- An earlier message of a job whose hash names none: the one that a worker still has, if there is such a one.
local function earlier_message(stream, id, msg)
  local found
  for _, entry in ipairs(call('XRANGE', stream, '-', '(' .. msg, 'COUNT', BATCH)) do
    if as_map(entry[2]).job_id == id then
      found = entry[1]
      if is_pending(stream, found) then return found end
    end
  end
  return found
end

-- Foreign events are not in our numbers until we take the job.
local function renumber_events(id)
  local event_seq, event_ms = number_events(id, NOW)
  call('HSET', job_key(id), 'event_seq', event_seq, 'event_ms', event_ms)
end

-- Whether a message takes the place of the one that its job has. While a worker has that one, nobody can tell whether it
-- puts the job back or runs it: `again` remembers the wish until that message is acknowledged (rest.lua).
local function takes_place(id, job, stream, msg)
  local present = job.msg
  if present and (stream_of(job.queue or 'default', job.priority) ~= stream or is_later(present, msg)) then return false end
  present = present or earlier_message(stream, id, msg)
  if present and is_pending(stream, present) then
    call('HSET', job_key(id), 'again', present)
    return false
  end
  if present then ack(stream, present) end
  return true
end
