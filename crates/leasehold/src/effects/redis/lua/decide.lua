-- Decides about an event that is not published. ARGV 1 number   2 retry or set_aside   3 by whom. 1 when it did.
local id, event = ARGV[1], event_of(ARGV[1])
if redis.call('EXISTS', event) == 0 or redis.call('HEXISTS', event, 'published') == 1 then return 0 end
redis.call('HDEL', event, 'retry')
redis.call('ZREM', RETRY, id)
if ARGV[2] == 'retry' then
    redis.call('HDEL', event, 'aside')
    redis.call('ZREM', ASIDE, id)
    redis.call('ZADD', WAITING, id, id)
else
    redis.call('HSET', event, 'aside', digits(now()), 'error', 'set aside by ' .. ARGV[3])
    redis.call('ZREM', WAITING, id)
    redis.call('ZADD', ASIDE, id, id)
end
redis.call('HSET', event, 'attempts', '0')
return 1
