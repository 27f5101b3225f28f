-- Documents. Needs lib.

-- Write a document whose stored version is the expected one; the new version, or 0 when another writer was faster.
local function put_document(kind, id, body, expected)
  local key = P .. 'doc:' .. kind
  local stored = call('HGET', key, id)
  local version = stored and string.match(stored, '^%d+') or '0'
  if version ~= expected then return 0 end
  local next_version = tonumber(version) + 1
  call('HSET', key, id, int(next_version) .. ':' .. body)
  return next_version
end
