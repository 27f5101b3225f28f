-- needs: lib line create
-- ARGV[3]: how many, ARGV[4]: the most that a queue may hold (0: any number), ARGV[5]: the most queued jobs of requesters, as
-- JSON ('': any number), then the new jobs. Answers {'ok', 1 created | {id, response or nil} known, …} or {'fault', …}.

local plan, fault = check(new_jobs(6, tonumber(ARGV[3])))
if fault then return fault end
fault = full(plan.fresh, tonumber(ARGV[4])) or over_quota(plan.fresh, ARGV[5])
if fault then return fault end
carry_out(plan)
flush()
local reply = {'ok'}
for i = 1, #plan.answers do reply[i + 1] = plan.answers[i] end
return reply
