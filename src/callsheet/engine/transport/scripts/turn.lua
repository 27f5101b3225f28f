-- needs: lib
-- ARGV: consumer, chore, ms of a turn, ms after which a silent process is gone. Says that this process is alive.
-- Answers 1 when it is its turn to do the chore: of many processes one does it each time.

call('ZADD', PROCESSES, int(now), ME)
call('ZREMRANGEBYSCORE', PROCESSES, '-inf', int(now - tonumber(ARGV[4])))
return call('SET', P .. 'turn:' .. ARGV[2], ME, 'NX', 'PX', ARGV[3]) and 1 or 0
