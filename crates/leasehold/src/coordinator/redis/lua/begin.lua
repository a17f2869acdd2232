-- How every script begins: the time, and what the shard is.
--
--   KEYS[1]  what the shard is                      KEYS[2]  the names of its resources, sorted
--   KEYS[3…] what each operation touches, in the order of the operations
--   ARGV[1]  told to every operation                ARGV[2…] the operations, packed
--
-- A call runs all operations of one kind that a client has at hand for one shard. An operation decides first and writes
-- last, so one that fails has changed nothing, and it runs under pcall: its neighbours have nothing to do with it. The
-- rules are those of `leasehold_core::slot`; a test compares them.
--
-- What a small script spends its time on, at every call: making a function and each variable that it sees; growing a table
-- item by item (so what is packed here is not an array, but its items one after another, and `{ unpack }` makes the table in
-- one go); and writing a number as text, for a command that takes it (so such figures are texts where they can be). Names of
-- fields and constants are replaced by their numbers when the scripts are put together.

-- Microseconds of the server's clock. All times here are such; they stay exact in a double until the year 2255.
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]

-- told: the longest TTL that the client's URL names, in milliseconds; 0 when it names none.
local told, first_max, reads_only, keeps_history = cmsgpack.unpack(ARGV[1])

-- An incarnation is one reign of one master: `master_replid` is drawn anew when a process starts as master and whenever a
-- replica becomes one, so it changes exactly when grants may have been forgotten, and a master that was deposed and comes
-- back (A, B, A) is told from the one it was. The server is asked, not the client, so no proxy can mislead us.
local incarnation = redis.call('INFO', 'replication')
local from = string.find(incarnation, 'master_replid:', 1, true)
incarnation = from and string.sub(incarnation, from + 14, from + 53) or ''
if #incarnation ~= 40 then error('LHUNSUPPORTED the server names no master_replid', 0) end

local stored = redis.call('GET', KEYS[1])
local space
local differs = not stored or string.sub(stored, 5, 44) ~= incarnation
if not stored then
  -- New, or without its memory.
  space = { told > 0 and told or first_max, 0, 0, 0, 0, 0 }
elseif string.sub(stored, 1, 4) ~= 'LHS1' then
  error('LHCORRUPT the key ' .. KEYS[1] .. ' holds something else', 0)
else
  space = cmsgpack.unpack(string.sub(stored, 45))
  -- A clock that was set back must not make a quarantine longer than it was made.
  if space.quarantine > now + space.lasts then
    space.quarantine = now + space.lasts
    if not reads_only then redis.call('SET', KEYS[1], string.sub(stored, 1, 44) .. cmsgpack.pack(space)) end
  end
end

if differs then
  local longest = space.max
  if now < space.wide_until and space.wide > longest then longest = space.wide end
  if space.quarantine < now + longest * 1000 then space.quarantine = now + longest * 1000 end
  space.lasts = space.quarantine - now
  if not reads_only then
    -- PERSIST takes no memory, as the server sees it: a script that began with it may write although memory is full.
    redis.call('PERSIST', KEYS[1])
    redis.call('SET', KEYS[1], 'LHS1' .. incarnation .. cmsgpack.pack(space))
  end
end

-- Microseconds of quarantine that are left.
local left = space.quarantine > now and space.quarantine - now or 0
