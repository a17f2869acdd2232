-- Settles an operation that is not done. ARGV 1 the operation   2 done or not_done   3 response   4 by whom. 1 when it did.
local name, record = ARGV[1], record_of(ARGV[1])
local state = redis.call('HGET', record, 'state')
if not state or state == 'done' then return 0 end
if ARGV[2] == 'done' then
    redis.call('HSET', record, 'state', 'done', 'response', ARGV[3], 'done', digits(now()), 'note', 'resolved by ' .. ARGV[4])
else
    redis.call('DEL', record)
    redis.call('ZREM', ALL, name)
end
redis.call('ZREM', OPEN, name)
return 1
