-- needs: lib
-- ARGV: sorted set, last seq seen ('' at the start), jobs wanted, rows to look at, then the filters, each '' or '=value':
-- requester, kind, queue, contract, created_from, created_to, statuses (' a b '), text in small letters, whether an open job has ever begun ('=1' or '=0').
-- Answers {hashes…, last seq looked at or '' at the end}.

local KEY, CURSOR, WANT, LOOK = P .. ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local requester, kind, queue, contract, from, to, statuses, text, begun = unpack(ARGV, 7, 15)
local NEEDLE = text ~= '' and string.sub(text, 2)
local JOB, WORDS = P .. 'job:', {'task', 'correlation_id', 'error', 'payload'}
local SOME = math.min(LOOK, 250) -- rows that are read at once; few filters need more for their first jobs

-- What is read of each job is what the filters ask for and no more: names of fields, and for each the values that fit.
local COLUMNS, FITTING = {}, {}
local function column(name, fitting)
  COLUMNS[#COLUMNS + 1], FITTING[#FITTING + 1] = name, fitting
end

local function equal(filter, name, default)
  if filter == '' then return end
  local wanted = string.sub(filter, 2)
  column(name, {[wanted] = true, [''] = wanted == default, [false] = wanted == default})
end

local function created(filter, fits)
  if filter == '' then return end
  local limit = tonumber(string.sub(filter, 2))
  column('created_ts', setmetatable({}, {__index = function(_, value)
    local at = tonumber(value)
    return at ~= nil and fits(at, limit)
  end}))
end

local STATUSES, WORDED = {}, {}
for status in string.gmatch(statuses, '[%a_]+') do STATUSES[status], WORDED[WORD[status]] = true, true end
if statuses ~= '' then
  WORDED[''], WORDED[false] = WORDED.queued, WORDED.queued
  column('status', WORDED)
end
equal(kind, 'task', '')
equal(queue, 'queue', 'default')
equal(requester, 'requester_id', '')
equal(contract, 'contract', OWN)
created(from, function(at, limit) return at >= limit end)
created(to, function(at, limit) return at < limit end)

-- One command for some rows instead of one for each takes half of the time. It is refused in a cluster, by some ACLs and
-- where no memory is left, and it takes the first star for the id, be it the prefix's.
local function at_once(skip, names)
  if string.find(P, '*', 1, true) then return nil end
  local ask = {'SORT', KEY, 'BY', 'nosort', 'DESC', 'LIMIT', skip, SOME}
  for _, name in ipairs(names) do
    ask[#ask + 1] = 'GET'
    ask[#ask + 1] = JOB .. '*->' .. name
  end
  local found = redis.pcall(unpack(ask))
  return not found.err and found
end

local function ids_at(skip) return call('ZREVRANGE', KEY, skip, skip + SOME - 1) end

local function one_by_one(skip, names)
  local found = {}
  for _, id in ipairs(ids_at(skip)) do
    local values = call('HMGET', JOB .. id, unpack(names))
    for i = 1, #names do found[#found + 1] = values[i] end
  end
  return found
end

-- The places, from 1, of those of some rows that fit, and how many rows there are.
local function fitting(skip)
  local values, stride, found = at_once(skip, COLUMNS) or one_by_one(skip, COLUMNS), #COLUMNS, {}
  for n = 1, #values / stride do
    local k, first = 1, (n - 1) * stride
    while k <= stride and FITTING[k][values[first + k]] do k = k + 1 end
    if k > stride then found[#found + 1] = n end
  end
  return found, #values / stride
end

local function all(skip)
  local found, count = {}, math.min(SOME, math.max(0, call('ZCARD', KEY) - skip))
  for n = 1, count do found[n] = n end
  return found, count
end

local find, lower = string.find, string.lower
local function says(value) return value and value ~= '' and find(lower(value), NEEDLE, 1, true) end
-- Many jobs have the same task.
local TASKS = setmetatable({}, {__index = function(known, task)
  known[task] = says(task) and true or false
  return known[task]
end})

-- Those of some places whose jobs say the text.
local function saying(skip, places, ids)
  local found, whole = {}, #places == #ids and at_once(skip, WORDS)
  for _, n in ipairs(places) do
    local values, at = whole, (n - 1) * #WORDS
    if not whole then values, at = call('HMGET', JOB .. ids[n], unpack(WORDS)), 0 end
    local yes = TASKS[values[at + 1]] or find(ids[n], NEEDLE, 1, true) or says(values[at + 2]) or says(values[at + 3]) or says(values[at + 4])
    if yes then found[#found + 1] = n end
  end
  return found
end

-- Its time may be over; and `error` is the word for two statuses.
local function is_it(id)
  local job = read(JOB .. id, {'status', 'dead', 'created_ts', 'started_at', 'attempt_started_at'})
  if not job.created_ts then return false end
  local status = status_of(job)
  if statuses ~= '' and not STATUSES[status] then return false end
  if begun == '' or (status ~= 'queued' and status ~= 'running') then return true end
  return (begun == '=1') == ((job.started_at or job.attempt_started_at) and true or false)
end

local skip, seen, last, reply = CURSOR == '' and 0 or call('ZCOUNT', KEY, CURSOR, '+inf'), 0, -1, {}
repeat
  local at = skip + seen
  local places, count = (#COLUMNS > 0 and fitting or all)(at)
  local ids = #places > 0 and ids_at(at) or NOTHING
  if NEEDLE then places = saying(at, places, ids) end
  last = at + count - 1
  for _, n in ipairs(places) do
    if is_it(ids[n]) then reply[#reply + 1] = call('HGETALL', JOB .. ids[n]) end
    if #reply == WANT then
      last = at + n - 1
      break
    end
  end
  seen = seen + count
until #reply == WANT or count < SOME or seen >= LOOK
local over = last < skip or (#reply < WANT and seen < LOOK)
reply[#reply + 1] = over and '' or int(tonumber(call('ZREVRANGE', KEY, last, last, 'WITHSCORES')[2]))
return reply
