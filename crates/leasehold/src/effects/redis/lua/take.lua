-- Takes the key of an external effect. ARGV 1–6 as the fence's   7 the operation   8 hash of the request   9 namespace   10 resource
local answer, remember = judge()
if not remember then return answer end
local name, record = ARGV[7], record_of(ARGV[7])
local stored = redis.call('HMGET', record, 'state', 'hash', 'token')
if not stored[1] then
    local wrong = unsound()
    if wrong then return wrong end
    remember()
    redis.call('HSET', record, 'hash', ARGV[8], 'state', 'started', 'namespace', ARGV[9], 'resource', ARGV[10],
        'token', ARGV[2], 'lease_id', ARGV[3], 'holder', ARGV[5], 'created', digits(now()))
    redis.call('ZADD', ALL, 0, name)
    redis.call('ZADD', OPEN, 0, name)
    return {'fresh'}
end
if stored[1] == 'started' and stored[2] == ARGV[8] and tonumber(stored[3]) < tonumber(ARGV[2]) then
    remember()
    redis.call('HSET', record, 'token', ARGV[2], 'lease_id', ARGV[3], 'holder', ARGV[5])
    return {'over'}
end
return {'theirs', redis.call('HGETALL', record)}
