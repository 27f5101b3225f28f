-- needs: lib
-- ARGV: consumer, then steps of four: kind, enqueue_id, job_id, queue. Answers with a message id for each, or ''.
-- publish: a message, unless there is one. take: the message becomes pending for this process; where it has not come
-- yet it is made. ack: the stay is over, and its message goes. A stay whose message was made or was over before it was
-- published is remembered for a while, so that the one that is still on its way does not come afterwards.

local REMEMBER_MS, REMEMBER = 60000, 20000

local function add(enqueue_id, job_id, queue)
  local stream = stream_of(queue)
  if call('EXISTS', stream) == 0 then form_group(stream, queue) end
  local id = call('XADD', stream, '*', 'job_id', job_id, 'enqueue_id', enqueue_id)
  call('HSET', MESSAGES, enqueue_id, id .. ' ' .. queue)
  return id
end

local function publish(enqueue_id, job_id, queue)
  local late = call('ZREM', OVER, enqueue_id) == 1
  if late or message_of(enqueue_id) then return '' end
  return add(enqueue_id, job_id, queue)
end

local function take(enqueue_id, job_id, queue)
  local id = message_of(enqueue_id)
  if not id then
    if call('ZSCORE', OVER, enqueue_id) then return '' end
    id = add(enqueue_id, job_id, queue)
    call('ZADD', OVER, now, enqueue_id)
  end
  local stream = stream_of(queue)
  local taken = redis.pcall('XCLAIM', stream, GROUP, ME, 0, id, 'FORCE', 'JUSTID')
  if taken.err then
    form_group(stream, queue)
    call('XCLAIM', stream, GROUP, ME, 0, id, 'FORCE', 'JUSTID')
  end
  return id
end

local function ack(enqueue_id)
  local id, stream = message_of(enqueue_id)
  call('HDEL', MESSAGES, enqueue_id)
  if id then drop(stream, id) else call('ZADD', OVER, now, enqueue_id) end
  return ''
end

local STEPS, reply = {publish = publish, take = take, ack = ack}, {}
for i = 2, #ARGV, 4 do reply[#reply + 1] = safely(STEPS[ARGV[i]], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
call('ZREMRANGEBYSCORE', OVER, '-inf', int(now - REMEMBER_MS))
call('ZREMRANGEBYRANK', OVER, 0, -REMEMBER - 1)
return reply
