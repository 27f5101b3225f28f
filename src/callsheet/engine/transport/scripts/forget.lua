-- needs: lib
-- ARGV: consumer, cursor. Forgets a part of those messages that are in no stream any more (somebody deleted it).
-- Answers with the next cursor.

local found = call('HSCAN', MESSAGES, ARGV[2], 'COUNT', 200)
for i = 1, #found[2], 2 do
  local id, queue = string.match(found[2][i + 1], '^(%S+) (.*)$')
  if not id or safely(is_there, stream_of(queue), id) ~= true then call('HDEL', MESSAGES, found[2][i]) end
end
return found[1]
