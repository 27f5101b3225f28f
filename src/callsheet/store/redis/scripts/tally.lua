-- needs: lib
-- ARGV: what ('ended_counts', 'dead_letters' or 'worker_loads'), requester ('' or '=value'), since, span in ms, rows to leave out, rows
-- to look at. Answers {rows looked at, key, count, latest, key, count, latest, …}; a key is its parts with the byte 31
-- between them: the span, the kind and the status; the kind; or the worker. Only of a load there is a latest: the
-- heartbeat.

local WHAT, requester, SINCE, SPAN, SKIP, LOOK = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]
local FIELDS = {'status', 'dead', 'requester_id', 'task', 'worker_id', 'heartbeat_at', 'attempt_started_at', 'created_ts'}
local rows, ids, times = {}, {}, {}
if WHAT == 'dead_letters' then
  rows = call('ZREVRANGE', P .. 'jobs:dead', SKIP, int(tonumber(SKIP) + tonumber(LOOK) - 1))
  ids = rows
else
  local set = WHAT == 'ended_counts' and 'jobs:ended' or 'jobs:leases'
  rows = call('ZRANGEBYSCORE', P .. set, SINCE, '+inf', 'WITHSCORES', 'LIMIT', SKIP, LOOK)
  for i = 1, #rows, 2 do ids[#ids + 1], times[#times + 1] = id_in(rows[i]), tonumber(rows[i + 1]) end
end

local WANTED = {
  ended_counts = function(job, at)
    local status = status_of(job)
    if status == 'queued' or status == 'running' then return nil end
    return int(at - at % SPAN) .. '\31' .. (job.task or '') .. '\31' .. status
  end,
  dead_letters = function(job) return status_of(job) == 'dead_letter' and (job.task or '') or nil end,
  worker_loads = function(job) return status_of(job) == 'running' and job.worker_id or nil end,
}

local counts, latest, order = {}, {}, {}
for i, id in ipairs(ids) do
  local job = read(job_key(id), FIELDS)
  local mine = job.created_ts and (requester == '' or string.sub(requester, 2) == (job.requester_id or ''))
  local key = mine and WANTED[WHAT](job, times[i])
  if key then
    if not counts[key] then order[#order + 1] = key end
    counts[key] = (counts[key] or 0) + 1
    local beat = tonumber(job.heartbeat_at or job.attempt_started_at or '')
    if beat and beat > (latest[key] or 0) then latest[key] = beat end
  end
end
local reply = {#ids}
for _, key in ipairs(order) do
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = key, counts[key], latest[key] and int(latest[key]) or ''
end
return reply
