local function save(key, slot, may_grow, past_key)
  local px = RETENTION_MS
  if slot.at > now then px = px + math.floor((slot.at - now) / 1000) end
  local raw = cmsgpack.pack(slot)
  local answer = redis.pcall('SET', key, raw, 'PX', px)
  if answer.err then
    if may_grow or not string.find(answer.err, 'OOM', 1, true) then error(answer.err, 0) end
    -- Memory is full. Ending or keeping what is there must go on: a write that takes no memory opens the way.
    redis.call('PEXPIRE', key, px)
    redis.call('SET', key, raw, 'PX', px)
  end
  if past_key and past and type(redis.pcall('LPUSH', past_key, past)) == 'number' then
    -- When memory is full the history has a gap, and the grant ends all the same.
    redis.call('LTRIM', past_key, 0, PAST_KEPT - 1)
    redis.call('PEXPIRE', past_key, RETENTION_MS)
  end
end
