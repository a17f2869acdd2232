-- The living of a queue, the first `named` of them by name. Of more than a thousand only the first are looked at.
local function waiters(slot, line, entries, named)
  local found, count = {}, 0
  if not slot.queued then return found, count end
  local order = redis.call('ZRANGE', line, 0, 999)
  for at = 1, #order, 100 do
    local some = {}
    for n = at, math.min(at + 99, #order) do some[#some + 1] = order[n] end
    for n, raw in ipairs(redis.call('HMGET', entries, unpack(some))) do
      local entry = raw and cmsgpack.unpack(raw)
      if entry and now - entry[2] < ENTRY_LIFE then
        count = count + 1
        if count <= named then found[count] = { some[n], entry[4], now > entry[1] and now - entry[1] or 0 } end
      end
    end
  end
  return found, count + redis.call('ZCARD', line) - #order
end

local function run(op, key, line, entries)
  local slot, new = load(key)
  sweep(slot)
  local found, count = waiters(slot, line, entries, op[1])
  return { 'seen', slot.lease and record(slot), slot.token, last_end(slot), slot.success, found, count, new and 1 or 0 }
end
