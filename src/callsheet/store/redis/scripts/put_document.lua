-- needs: lib
-- ARGV: kind, id, body, expected version. Answers the new version, or 0 when another writer was faster.

local key = P .. 'doc:' .. ARGV[3]
local stored = call('HGET', key, ARGV[4])
local version = stored and string.match(stored, '^%d+') or '0'
if version ~= ARGV[6] then return 0 end
local next_version = tonumber(version) + 1
call('HSET', key, ARGV[4], int(next_version) .. ':' .. ARGV[5])
return next_version
