-- needs: lib line create
-- ARGV: requesters. Answers how many queued jobs each has.

local reply = {}
for i = 3, #ARGV do reply[#reply + 1] = queued_of(ARGV[i]) end
return reply
