-- needs: lib
-- ARGV: this program's schema version. Answers the version that was there, '0' for none; writes ours if it is newer.

local key = P .. 'callsheet:schema'
local have = call('GET', key) or '0'
if tonumber(have) < tonumber(ARGV[3]) then call('SET', key, ARGV[3]) end
return have
