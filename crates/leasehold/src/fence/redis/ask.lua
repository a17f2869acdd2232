-- The rule of the fence, in one step with whatever follows it.
--
-- KEYS[1]  the fence of the resource: a hash of token, lease_id, op_seq, holder, refused
-- ARGV     1 ask: seal, write or enter   2 token   3 lease id   4 op_seq or ''   5 holder   6 longest lead in µs or ''
--
-- Tokens are below 2^53, so that they are exact as Lua's numbers; they are stored and answered as text.
local function whole(text)
    if not string.match(text, '^%d+$') or #text > 16 then return nil end
    local number = tonumber(text)
    if number < 1 or number > 9007199254740991 then return nil end
    return number
end

-- The answer, and a function that remembers what is to be remembered.
local function judge()
    local ask, token, lease_id, op_seq = ARGV[1], whole(ARGV[2]), ARGV[3], ''
    if ARGV[2] == '' or lease_id == '' then return {'missing_token'} end
    if not token or not string.match(lease_id, '^%x+$') or #lease_id ~= 32 then
        return {err = 'LHINVALID the fencing token or the lease id is none'}
    end
    if ask ~= 'seal' and ask ~= 'write' and ask ~= 'enter' then return {err = 'LHINVALID ask is seal, write or enter'} end
    if ARGV[4] ~= '' and not whole(ARGV[4]) then return {err = 'LHINVALID op_seq is none'} end
    if ask ~= 'seal' then op_seq = ARGV[4] end
    if ARGV[6] ~= '' then
        local time = redis.call('TIME')
        local limit = tonumber(time[1]) * 1000000 + tonumber(time[2]) + tonumber(ARGV[6])
        if token > limit then return {'token_too_high', string.format('%.0f', limit)} end
    end

    local function remember(number)
        return function()
            redis.call('HSET', KEYS[1], 'token', string.format('%.0f', token), 'lease_id', lease_id, 'op_seq', number, 'holder', ARGV[5])
        end
    end
    local stored = redis.call('HMGET', KEYS[1], 'token', 'lease_id', 'op_seq', 'holder')
    if not stored[1] then
        if ask == 'write' then return {'no_such_resource'} end
        return {'admitted'}, remember(op_seq)
    end
    local highest = whole(stored[1])
    if not highest then return {err = 'LHCORRUPT the token of a fence is none'} end
    local grant, number = stored[2] or '', stored[3] or ''
    local seen = {stored[1], grant, number, stored[4] or ''}
    local function refuse(word)
        redis.call('HINCRBY', KEYS[1], 'refused', 1)
        return {word, seen[1], seen[2], seen[3], seen[4]}
    end
    if token > highest then return {'admitted'}, remember(op_seq) end
    if token < highest then return refuse('stale') end
    -- Raised by hand: a token has one grant, and here it is.
    if grant == '' then return {'admitted'}, remember(op_seq) end
    if grant ~= lease_id then return refuse('collision') end
    if op_seq ~= '' then
        if number ~= '' and tonumber(op_seq) <= tonumber(number) then return refuse('stale') end
        return {'admitted'}, remember(op_seq)
    end
    return {'admitted'}, function() end
end
