-- A key of ours that somebody else has written to would stop a script behind the effect: nothing is rolled back here, so it is looked
-- for before.
local function unsound()
    local types = {[ALL] = 'zset', [OPEN] = 'zset', [OLD] = 'zset', [OUTBOX] = 'zset', [WAITING] = 'zset', [LAST] = 'string'}
    for key, type in pairs(types) do
        local found = redis.call('TYPE', key).ok
        if found ~= type and found ~= 'none' then
            return {err = 'LHCORRUPT the key ' .. key .. ' is no ' .. type}
        end
    end
    local last = redis.call('GET', LAST)
    if last and not string.match(last, '^%d+$') then return {err = 'LHCORRUPT the key ' .. LAST .. ' is no number'} end
end
