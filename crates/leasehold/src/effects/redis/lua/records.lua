-- A part of the list of operations. ARGV 1 all or open   2 from where   3 to where   4 state or ''   5 how many
-- It looks at a thousand at most, so that nobody waits for long. Where to go on, or '', and what was found.
local found, looked = {}, redis.call('ZRANGEBYLEX', ARGV[1] == 'open' and OPEN or ALL, ARGV[2], ARGV[3], 'LIMIT', 0, 1000)
local last = ''
for _, name in ipairs(looked) do
    if #found == tonumber(ARGV[5]) then return {last, found} end
    last = name
    local state = redis.call('HGET', record_of(name), 'state')
    if state and (ARGV[4] == '' or ARGV[4] == state) then
        found[#found + 1] = {name, redis.call('HGETALL', record_of(name))}
    end
end
if #looked < 1000 then last = '' end
return {last, found}
