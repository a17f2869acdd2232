-- What the scripts of the effects share. KEYS[2] is `lheffects:{TAG}:keys`; all other names of ours follow from it, in its slot.
--
-- keys      sorted set, all scores 0: `SCOPE NUL KEY` of every operation   open  the same of those that are not done
-- old       sorted set by µs: when an operation that is done may be forgotten
-- key:…     hash: hash, state, namespace, resource, token, lease_id, holder, response, note, created, done, expires, events
-- last      the highest number of an event
-- outbox    sorted set by number: every event      waiting, aside  the same of those that are to be published, or were set aside
-- retry     sorted set by µs: waiting events that were refused, and when they are tried again
-- event:N   hash: topic, payload, operation, namespace, resource, token, created, published, attempts, aside, retry, error
local ROOT = string.sub(KEYS[2], 1, -5)
local ALL, OPEN, OLD = KEYS[2], ROOT .. 'open', ROOT .. 'old'
local LAST, OUTBOX, WAITING = ROOT .. 'last', ROOT .. 'outbox', ROOT .. 'waiting'
local ASIDE, RETRY = ROOT .. 'aside', ROOT .. 'retry'

local function record_of(name) return ROOT .. 'key:' .. name end
local function event_of(id) return ROOT .. 'event:' .. id end
-- Numbers below 2^53, which are exact here; printed without an exponent.
local function digits(number) return string.format('%.0f', number) end
local function now()
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
