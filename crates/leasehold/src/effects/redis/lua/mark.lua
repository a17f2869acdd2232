-- Notes what became of events. ARGV 1–6 as the fence's, for the relay's own lease   7 how many; then of each the number,
-- published, failed or set_aside, µs until it is tried again, and why
local answer, remember = judge()
if not remember then return answer end
remember()
local time = now()
for number = 1, tonumber(ARGV[7]) do
    local at = 4 + 4 * number
    local id, fate, again, why = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local event = event_of(id)
    if redis.call('EXISTS', event) == 1 and redis.call('HEXISTS', event, 'published') == 0 then
        redis.call('ZREM', RETRY, id)
        if fate == 'published' then
            redis.call('HSET', event, 'published', digits(time))
            redis.call('HDEL', event, 'retry')
            redis.call('ZREM', WAITING, id)
            redis.call('ZREM', ASIDE, id)
        else
            redis.call('HINCRBY', event, 'attempts', 1)
            redis.call('HSET', event, 'error', why)
            if fate == 'failed' then
                redis.call('HSET', event, 'retry', digits(time + tonumber(again)))
                redis.call('ZADD', RETRY, digits(time + tonumber(again)), id)
            else
                redis.call('HSET', event, 'aside', digits(time))
                redis.call('ZREM', WAITING, id)
                redis.call('ZADD', ASIDE, id, id)
            end
        end
    end
end
return {'noted'}
