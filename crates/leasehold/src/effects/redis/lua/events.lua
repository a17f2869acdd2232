-- A part of the list of events. ARGV 1 queue: '', waiting, set_aside or published   2 behind which   3 how many
-- As with operations: where to go on, or '', and what was found.
local queues = {waiting = WAITING, set_aside = ASIDE}
local looked = redis.call('ZRANGEBYSCORE', queues[ARGV[1]] or OUTBOX, '(' .. ARGV[2], '+inf', 'LIMIT', 0, 1000)
local found, last = {}, ''
for _, id in ipairs(looked) do
    if #found == tonumber(ARGV[3]) then return {last, found} end
    last = id
    local event = redis.call('HGETALL', event_of(id))
    if #event > 0 and (ARGV[1] ~= 'published' or redis.call('HEXISTS', event_of(id), 'published') == 1) then
        found[#found + 1] = {id, event}
    end
end
if #looked < 1000 then last = '' end
return {last, found}
