-- needs: lib
-- ARGV: consumer, queues… The process is alive, and becomes a consumer of their streams. Answers with the queues that it can read.

local joined = {}
local function join(queue)
  form_group(stream_of(queue), queue)
  call('XGROUP', 'CREATECONSUMER', stream_of(queue), GROUP, ME)
  joined[#joined + 1] = queue
end
call('ZADD', PROCESSES, int(now), ME)
for i = 2, #ARGV do safely(join, ARGV[i]) end
return joined
