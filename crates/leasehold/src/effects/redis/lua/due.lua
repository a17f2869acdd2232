-- What is to be published next, in the order in which it was written. ARGV 1 how many.
-- How many wait, for how many µs the oldest of them has waited, and the events.
local time, held = now(), {}
local function place_of(id)
    local place = redis.call('HMGET', event_of(id), 'namespace', 'resource')
    return (place[1] or '') .. '\0' .. (place[2] or '')
end
-- One that was refused holds up what is behind it on its resource, and itself, until it is tried again.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', RETRY, '(' .. digits(time), '+inf')) do
    local place, number = place_of(id), tonumber(id)
    held[place] = math.min(held[place] or number, number)
end
local found, limit, after, looked = {}, tonumber(ARGV[1]), '-inf', 0
repeat
    local ids = redis.call('ZRANGEBYSCORE', WAITING, after, '+inf', 'LIMIT', 0, 100)
    for _, id in ipairs(ids) do
        after, looked = '(' .. id, looked + 1
        local first = held[place_of(id)]
        if not first or tonumber(id) < first then
            local event = redis.call('HGETALL', event_of(id))
            if #event > 0 then
                found[#found + 1] = {id, event}
            else
                -- Taken away by hand, or by a server that evicts: nobody would ever be done with it.
                redis.call('ZREM', WAITING, id)
            end
            if #found == limit then break end
        end
    end
-- So many wait behind what was refused, at most, until the server has other things to do.
until #ids < 100 or #found == limit or looked >= 10000
local oldest, lag = redis.call('ZRANGE', WAITING, 0, 0)[1], 0
if oldest then lag = math.max(0, time - tonumber(redis.call('HGET', event_of(oldest), 'created') or time)) end
return {redis.call('ZCARD', WAITING), digits(lag), found}
