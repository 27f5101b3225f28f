-- needs: lib
-- ARGV[3] on: FIELDS of each entry, in their order. One entry is in the stream of all and in its requester's, by one id:
-- the time, never less than that of the entry before it, and a number. Answers the ids.

local FIELDS = {'requester_id', 'action', 'actor', 'target', 'outcome', 'address', 'request_id', 'details'}
local log, ids = P .. 'audit:log', {}
local last = call('EXISTS', log) == 1 and as_map(call('XINFO', 'STREAM', log))['last-generated-id'] or '0-0'
local last_ms, n = string.match(last, '^(%d+)-(%d+)$')
for i = 3, #ARGV, #FIELDS do
  local ms = at_least(last_ms)
  n = ms == last_ms and tonumber(n) + 1 or 1
  last_ms = ms
  local entry = {}
  for k, name in ipairs(FIELDS) do entry[2 * k - 1], entry[2 * k] = name, ARGV[i + k - 1] end
  local id = ms .. '-' .. int(n)
  call('XADD', log, id, unpack(entry))
  call('XADD', P .. 'audit:of:' .. ARGV[i], id, unpack(entry))
  ids[#ids + 1] = id
end
return ids
