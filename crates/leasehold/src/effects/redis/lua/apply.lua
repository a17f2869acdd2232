-- The effect with everything that belongs to it, in one step.
--
-- KEYS[3…]  the keys of the commands
-- ARGV      1–6 as the fence's   7 fresh, or mine for a key that this grant has started   8 the operation: SCOPE NUL KEY
--           9 hash of the request   10 namespace   11 resource   12 response   13 µs for which it is kept, or ''
--           14 number of events, then topic and payload of each; number of commands, then of each the number of its words and the words
local answer, remember = judge()
if not remember then return answer end
local name, record = ARGV[8], record_of(ARGV[8])
local stored = redis.call('HMGET', record, 'state', 'token', 'lease_id')
if ARGV[7] == 'fresh' then
    if stored[1] then return {'twin'} end
elseif stored[1] ~= 'started' or stored[2] ~= ARGV[2] or stored[3] ~= ARGV[3] then
    return {'resolved'}
end
local wrong = unsound()
if wrong then return wrong end

local time = now()
remember()
-- The first change: a server that is full, cannot save, or is a replica, refuses it before anything has happened, and no other after it.
if ARGV[7] == 'fresh' then
    redis.call('HSET', record, 'hash', ARGV[9], 'state', 'started', 'namespace', ARGV[10], 'resource', ARGV[11],
        'token', ARGV[2], 'lease_id', ARGV[3], 'holder', ARGV[5], 'created', digits(time))
else
    redis.call('HSET', record, 'holder', ARGV[5])
end

local at = 15 + 2 * tonumber(ARGV[14])
local commands = tonumber(ARGV[at])
at = at + 1
for number = 1, commands do
    local words = tonumber(ARGV[at])
    local result = redis.pcall(unpack(ARGV, at + 1, at + words))
    if type(result) == 'table' and result.err then
        if number == 1 then
            if ARGV[7] == 'fresh' then redis.call('DEL', record) end
            return {'failed', result.err}
        end
        -- What was done stays done. Nobody may repeat it, so a person decides.
        local note = 'command ' .. number .. ' of ' .. commands .. ' failed (' .. result.err .. '); those before it are done'
        redis.call('HSET', record, 'state', 'needs_reconciliation', 'note', note)
        redis.call('ZADD', ALL, 0, name)
        redis.call('ZADD', OPEN, 0, name)
        return {'half'}
    end
    at = at + words + 1
end

local ids, last = {}, tonumber(redis.call('GET', LAST) or '0')
for number = 1, tonumber(ARGV[14]) do
    -- Floored by time: a server that has forgotten its last number gives none of them a second time.
    last = math.max(last + 1, time)
    local id = digits(last)
    redis.call('HSET', event_of(id), 'topic', ARGV[13 + 2 * number], 'payload', ARGV[14 + 2 * number], 'operation', name,
        'namespace', ARGV[10], 'resource', ARGV[11], 'token', ARGV[2], 'created', digits(time), 'attempts', '0')
    redis.call('ZADD', OUTBOX, id, id)
    redis.call('ZADD', WAITING, id, id)
    ids[number] = id
end
if #ids > 0 then redis.call('SET', LAST, digits(last)) end
redis.call('HSET', record, 'state', 'done', 'response', ARGV[12], 'done', digits(time), 'events', table.concat(ids, ' '))
if ARGV[13] ~= '' then
    local expires = digits(time + tonumber(ARGV[13]))
    redis.call('HSET', record, 'expires', expires)
    redis.call('ZADD', OLD, expires, name)
end
redis.call('ZADD', ALL, 0, name)
redis.call('ZREM', OPEN, name)
-- Memory is what this costs: each operation clears away two that are over.
purge(2, time)
return {'done'}
