-- needs: lib
-- ARGV: job_id or '', status or '', limit, last seq seen, rows to look at. Answers {hashes…, last seq or '' at the end}.

local SET = ARGV[3] == '' and P .. 'jobs:outbox:all' or job_key(ARGV[3]) .. ':outbox'
local WANT, LOOK, reply, last = tonumber(ARGV[5]), tonumber(ARGV[7]), {}, ''
local rows = call('ZRANGEBYSCORE', SET, '(' .. ARGV[6], '+inf', 'WITHSCORES', 'LIMIT', 0, LOOK)
for i = 1, #rows, 2 do
  local key = P .. 'outbox:' .. rows[i]
  last = int(tonumber(rows[i + 1]))
  if #reply < WANT and (ARGV[4] == '' or call('HGET', key, 'status') == ARGV[4]) then reply[#reply + 1] = call('HGETALL', key) end
end
if #rows < 2 * LOOK then last = '' end
reply[#reply + 1] = last
return reply
