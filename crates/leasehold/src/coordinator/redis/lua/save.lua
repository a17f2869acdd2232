local function save(key, slot, may_grow, past_key)
  -- An hour more is enough for nearly all grants, and as text it costs half as much as a number.
  local px = 'RETENTION_MS'
  if slot.at > now then
    px = slot.at - now <= HOUR_US and 'RETENTION_HOUR_MS' or RETENTION_MS + math.floor((slot.at - now) / 1000)
  end
  local raw = cmsgpack.pack(unpack(slot, 1, SLOT_FIELDS))
  local answer = redis.pcall('SET', key, raw, 'PX', px)
  if answer.err then
    if may_grow or not string.find(answer.err, 'OOM', 1, true) then error(answer.err, 0) end
    -- Memory is full. Ending or keeping what is there must go on: a write that takes no memory opens the way.
    redis.call('PEXPIRE', key, px)
    redis.call('SET', key, raw, 'PX', px)
  end
  if past_key and past then
    -- When memory is full the history has a gap, and the grant ends all the same.
    local length = redis.pcall('LPUSH', past_key, past)
    if type(length) == 'number' then
      if length >= PAST_TRIMMED_AT then redis.call('LTRIM', past_key, '0', 'PAST_LAST') end
      -- Once a day is enough for each to be kept for as long as the record is.
      if length == 1 or first_today then redis.call('PEXPIRE', past_key, 'RETENTION_DAY_MS') end
    end
  end
end
