-- needs: lib
-- ARGV: consumer, queue, idle ms, cursor, how many. Pending entries that nobody has looked after become ours; one whose
-- message is gone is acknowledged. Answers {next cursor, {message id, field, value, …}, …}.

local STREAM = stream_of(ARGV[2])
local found = redis.pcall('XAUTOCLAIM', STREAM, GROUP, ME, ARGV[3], ARGV[4], 'COUNT', ARGV[5], 'JUSTID')
if found.err then return {'0-0'} end
local reply = {found[1]}
for _, id in ipairs(found[2]) do
  local entry = call('XRANGE', STREAM, id, id)[1]
  if entry then reply[#reply + 1] = {id, unpack(entry[2], 1, 20)} else call('XACK', STREAM, GROUP, id) end
end
return reply
