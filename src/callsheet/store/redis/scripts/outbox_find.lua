-- needs: lib
-- ARGV: job_id, status, limit, last seq seen, rows to look at, requester, endpoint, created_from, created_to, after,
-- newest first ('1'), whether a requester is asked for ('1'). Answers {hashes…, last seq or '' at the end}.

local SET = ARGV[3] == '' and P .. 'jobs:outbox:all' or job_key(ARGV[3]) .. ':outbox'
local WANT, LAST, LOOK, reply, last = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]), {}, ''
local FROM, TO, NEWEST = tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[13] == '1'
if LAST == '' and ARGV[12] ~= '' then
  LAST = call('ZSCORE', SET, ARGV[12])
  if not LAST then return {''} end
  LAST = int(tonumber(LAST))
end

local function wanted(key)
  local v = call('HMGET', key, 'status', 'requester_id', 'endpoint', 'created_at')
  local at = tonumber(v[4])
  return at and (ARGV[4] == '' or v[1] == ARGV[4]) and (ARGV[14] ~= '1' or v[2] == ARGV[8])
    and (ARGV[9] == '' or v[3] == ARGV[9]) and (not FROM or at >= FROM) and (not TO or at < TO)
end

local rows
if NEWEST then
  rows = call('ZREVRANGEBYSCORE', SET, LAST == '' and '+inf' or '(' .. LAST, '-inf', 'WITHSCORES', 'LIMIT', 0, LOOK)
else
  rows = call('ZRANGEBYSCORE', SET, LAST == '' and '-inf' or '(' .. LAST, '+inf', 'WITHSCORES', 'LIMIT', 0, LOOK)
end
for i = 1, #rows, 2 do
  local key = P .. 'outbox:' .. rows[i]
  last = int(tonumber(rows[i + 1]))
  if #reply < WANT and wanted(key) then reply[#reply + 1] = call('HGETALL', key) end
end
if #rows < 2 * LOOK then last = '' end
reply[#reply + 1] = last
return reply
