-- Forgets operations that are done and whose time is over, at most `limit`. One whose events still wait is kept, because it says what
-- they are about, and is looked at again in a minute. How many were forgotten, and how many were looked at.
local function purge(limit, time)
    local gone, names = 0, redis.call('ZRANGEBYSCORE', OLD, '-inf', digits(time), 'LIMIT', 0, limit)
    for _, name in ipairs(names) do
        local ids, waits = {}, false
        local record = redis.call('HMGET', record_of(name), 'state', 'events')
        for id in string.gmatch(record[2] or '', '%d+') do
            ids[#ids + 1] = id
            local event = redis.call('HMGET', event_of(id), 'topic', 'published')
            if event[1] and not event[2] then waits = true end
        end
        if record[1] and record[1] ~= 'done' then
            redis.call('ZREM', OLD, name)
        elseif waits then
            redis.call('ZADD', OLD, digits(time + 60000000), name)
        else
            for _, id in ipairs(ids) do
                redis.call('DEL', event_of(id))
                redis.call('ZREM', OUTBOX, id)
            end
            redis.call('DEL', record_of(name))
            redis.call('ZREM', ALL, name)
            redis.call('ZREM', OLD, name)
            gone = gone + 1
        end
    end
    return gone, #names
end
