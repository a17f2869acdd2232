-- Leaves a key that this grant has started. ARGV 1–6 as the fence's   7 the operation   8 park or forget   9 why
local answer, remember = judge()
if not remember then return answer end
local name, record = ARGV[7], record_of(ARGV[7])
local stored = redis.call('HMGET', record, 'state', 'token')
if stored[1] ~= 'started' or stored[2] ~= ARGV[2] then return {'resolved'} end
remember()
if ARGV[8] == 'park' then
    redis.call('HSET', record, 'state', 'needs_reconciliation', 'note', ARGV[9])
else
    redis.call('DEL', record)
    redis.call('ZREM', ALL, name)
    redis.call('ZREM', OPEN, name)
end
return {'left'}
