-- needs: lib
-- ARGV: consumer, queue, then messages of three: verdict, message id, enqueue_id. Verdict 'live': the job waits or runs
-- under that enqueue_id; 'over': it does not; '': nobody has asked the database. A message that is over, or the second
-- of its stay, is acknowledged away. Answers with the ids of those that the database must be asked about.

local QUEUE, unknown = ARGV[2], {}
local STREAM = stream_of(QUEUE)

local function weigh(verdict, id, enqueue_id)
  if verdict == 'over' then
    if call('HGET', MESSAGES, enqueue_id) == id .. ' ' .. QUEUE then call('HDEL', MESSAGES, enqueue_id) end
    return drop(STREAM, id)
  end
  local known = message_of(enqueue_id)
  if known == id then return end
  if known then return drop(STREAM, id) end
  if verdict == '' then unknown[#unknown + 1] = id
  else call('HSET', MESSAGES, enqueue_id, id .. ' ' .. QUEUE) end
end

for i = 3, #ARGV, 3 do safely(weigh, ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
return unknown
