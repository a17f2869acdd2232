local function run(op)
  local fresh, asked = op[1] == 1, op[2]
  if fresh and space.settled == 1 then return { 'refused', 'fresh' } end
  local created = 1 - space.settled
  if asked > 0 then
    if asked < space.max and stored then
      -- Grants of the old bound may run for as long.
      if now >= space.wide_until or space.max > space.wide then space.wide = space.max end
      space.wide_until = math.max(space.wide_until, now + space.max * 1000)
    end
    space.max = asked
    if not stored and space.quarantine < now + asked * 1000 then
      space.quarantine, space.lasts = now + asked * 1000, asked * 1000
    end
  end
  if fresh then space.quarantine, space.lasts = 0, 0 end
  space.settled = 1
  keep_space()
  return { 'prepared', created, space.max, math.max(space.quarantine - now, 0) }
end
