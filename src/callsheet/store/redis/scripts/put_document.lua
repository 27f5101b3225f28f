-- needs: lib document
-- ARGV: kind, id, body, expected version. Answers the new version, or 0 when another writer was faster.

return put_document(ARGV[3], ARGV[4], ARGV[5], ARGV[6])
