-- needs: lib forget
-- ARGV: job_id, claim_version, … Deletes the ended jobs among them whose claim is still the one named; answers how many.

local n = 0
for i = 3, #ARGV, 2 do
  local job = read(job_key(ARGV[i]), ENDED)
  local at = job.seq and (job.claim_version or '0') == ARGV[i + 1] and call('ZSCORE', P .. 'jobs:ended', member(job.seq, ARGV[i]))
  if at then
    forget(gone_of(ARGV[i], job, at))
    n = n + 1
  end
end
flush()
return n
