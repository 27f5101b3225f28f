-- needs: lib
-- ARGV: limit, then job_id and seq of each. The n-th entry of a stream is event n, whoever wrote it, so the entries
-- after `seq` are read from the nearer end. Answers per job {job_id, seq of the first, {id, fields}, …}.

local LIMIT, reply = tonumber(ARGV[3]), {}
for i = 4, #ARGV, 2 do
  local id, after = ARGV[i], tonumber(ARGV[i + 1])
  local key = events_key(id)
  local left = call('XLEN', key) - after
  if left > 0 then
    local found, n = {id, after + 1}, math.min(left, LIMIT)
    if after + n <= left then
      local entries = call('XRANGE', key, '-', '+', 'COUNT', after + n)
      for k = after + 1, #entries do found[#found + 1] = entries[k] end
    else
      local entries = call('XREVRANGE', key, '+', '-', 'COUNT', left)
      for k = #entries, #entries - n + 1, -1 do found[#found + 1] = entries[k] end
    end
    reply[#reply + 1] = found
  end
end
return reply
