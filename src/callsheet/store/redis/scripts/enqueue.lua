-- needs: lib line create
-- ARGV[3]: how many, then the new jobs. Answers {'ok', 1 created | {id, response or nil} known, …} or {'fault', …}.

local plan, fault = check(new_jobs(4, tonumber(ARGV[3])))
if fault then return fault end
carry_out(plan)
flush()
local reply = {'ok'}
for i = 1, #plan.answers do reply[i + 1] = plan.answers[i] end
return reply
