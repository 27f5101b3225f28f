-- needs: lib
-- ARGV: eight for each change: job id, its version and wrapped key as they were read, then the five new columns.
-- Answers 1 or 0 for each.

local KEK, reply = 'storage_creds_kek_id', {}
for i = 3, #ARGV, 8 do
  local id, key = ARGV[i], job_key(ARGV[i]) .. ':credentials'
  local was = call('HMGET', key, 'credential_version', 'storage_creds_dek_wrapped', KEK)
  if was[1] and was[1] == ARGV[i + 1] and was[2] == ARGV[i + 2] then
    call('HSET', key, 'credential_version', ARGV[i + 3], 'storage_creds_encrypted', ARGV[i + 4], 'storage_creds_dek_wrapped',
      ARGV[i + 5], KEK, ARGV[i + 6], 'storage_creds_encryption_version', ARGV[i + 7])
    if was[3] ~= ARGV[i + 6] then
      unlist_credentials(id, was[3])
      list_credentials(id, ARGV[i + 6])
    end
    reply[#reply + 1] = 1
  else
    reply[#reply + 1] = 0
  end
end
return reply
