-- The short way of most settlements: a plain job succeeds in the attempt that its claim began. Needs lib and move.
-- It leaves the same as the long way, but that the attempt is not written apart: `outcome` in the hash says that all
-- of it is there already (a call less, and a key less for every job).

local streams = {}
local function is_plain_success(s, v)
  return s.to == 'succeeded' and not s.rare and not v[14] and v[1] == 'running' and v[2] == s.version and v[3] and v[3] ~= ''
    and v[9] and v[9] ~= '' and not v[5] and v[10] and v[11] and s.type ~= '' and s.outcome ~= ''
end

local function succeed_plainly(s, key, v)
  local id, queue, at, seq, progress = s.id, v[12] or 'default', at_least(v[6]), NEXT[v[4] or '1'], v[7] or '0'
  if s.progress ~= '' and tonumber(s.progress) > tonumber(progress) then progress = s.progress end
  local ms = emit(id, at, seq, progress, s.type, s.step, s.data)
  call('HSET', key, 'status', 'done', 'updated_ts', at, 'result', s.result, 'progress', progress, 'event_seq', seq,
    'outcome', s.outcome)
  if ms ~= at then call('HSET', key, 'event_ms', ms) end
  local line = queue .. '\31' .. (v[13] or '0')
  local stream = streams[line] or stream_of(queue, v[13])
  streams[line] = stream
  ack(stream, v[11])
  local m = member(v[10], id)
  unleased[#unleased + 1] = m
  local n = #ended
  ended[n + 1], ended[n + 2] = at, m
  hinted_jobs[#hinted_jobs + 1] = id
  count(queue, 'running', -1)
  count(queue, 'succeeded', 1)
end
