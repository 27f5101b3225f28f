-- needs: lib
-- ARGV: the time before which entries go, how many at most. Answers how many went.

local log, ids = P .. 'audit:log', {}
for _, entry in ipairs(call('XRANGE', log, '-', '(' .. ARGV[3] .. '-0', 'COUNT', ARGV[4])) do
  local own = P .. 'audit:of:' .. (as_map(entry[2]).requester_id or '')
  call('XDEL', own, entry[1])
  if call('XLEN', own) == 0 then call('DEL', own) end
  ids[#ids + 1] = entry[1]
end
in_chunks(ids, function(...) call('XDEL', log, ...) end)
return #ids
