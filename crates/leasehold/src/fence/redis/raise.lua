-- Raises the token by hand; never lowers it. ARGV: 1 token   2 who. What is remembered now.
local stored = redis.call('HGET', KEYS[1], 'token')
if not stored or tonumber(stored) < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[1], 'token', ARGV[1], 'lease_id', '', 'op_seq', '', 'holder', ARGV[2])
end
return redis.call('HMGET', KEYS[1], 'token', 'lease_id', 'op_seq', 'holder')
