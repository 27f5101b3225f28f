-- needs: lib
-- ARGV: sorted set, last seq seen ('' at the start), jobs wanted, rows to look at, then the filters, each '' or '=value':
-- requester, kind, queue, contract, created_from, created_to, statuses (' a b '), text in small letters.
-- Answers {hashes…, last seq looked at or '' at the end}.

local KEY, CURSOR, WANT, LOOK = P .. ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local FIELDS = {'status', 'dead', 'requester_id', 'task', 'queue', 'contract', 'created_ts'}
local requester, kind, queue, contract, from, to, statuses, text = unpack(ARGV, 7, 14)
local WORDS = {'task', 'correlation_id', 'error', 'payload'}

local function differs(filter, value) return filter ~= '' and string.sub(filter, 2) ~= value end

local function says(id)
  local needle = string.sub(text, 2)
  if string.find(id, needle, 1, true) then return true end
  for _, value in pairs(read(job_key(id), WORDS)) do
    if string.find(string.lower(value), needle, 1, true) then return true end
  end
  return false
end

local function fits(job)
  if not job.created_ts then return false end
  if differs(requester, job.requester_id or '') or differs(kind, job.task or '') or differs(queue, job.queue or 'default') then return false end
  if differs(contract, job.contract or 'callsheet') then return false end
  local created = tonumber(job.created_ts)
  if from ~= '' and created < tonumber(string.sub(from, 2)) then return false end
  if to ~= '' and created >= tonumber(string.sub(to, 2)) then return false end
  return statuses == '' or string.find(statuses, ' ' .. status_of(job) .. ' ', 1, true) ~= nil
end

local max = CURSOR == '' and '+inf' or '(' .. CURSOR
local rows, reply, last = call('ZREVRANGEBYSCORE', KEY, max, '-inf', 'WITHSCORES', 'LIMIT', 0, LOOK), {}, ''
for i = 1, #rows, 2 do
  last = int(tonumber(rows[i + 1]))
  if fits(read(job_key(rows[i]), FIELDS)) and (text == '' or says(rows[i])) then reply[#reply + 1] = call('HGETALL', job_key(rows[i])) end
  if #reply == WANT then break end
end
if #rows < 2 * LOOK and #reply < WANT then last = '' end
reply[#reply + 1] = last
return reply
