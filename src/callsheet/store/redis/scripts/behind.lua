-- Where the part of a stream begins that its group has not delivered yet. Needs lib.

-- The later of two messages' ids.
local function later(a, b)
  local a_ms, a_n = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_n = string.match(b, '^(%d+)-(%d+)$')
  a_ms, b_ms = tonumber(a_ms), tonumber(b_ms)
  return (a_ms > b_ms or (a_ms == b_ms and tonumber(a_n) > tonumber(b_n))) and a or b
end

-- The last message that the group has delivered, '0-0' for none.
local function delivered(stream)
  for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do
    local info = as_map(group)
    if info.name == GROUP then return info['last-delivered-id'] end
  end
  return '0-0'
end
