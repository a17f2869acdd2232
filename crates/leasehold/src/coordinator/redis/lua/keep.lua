local function keep_space()
  redis.call('PERSIST', KEYS[1])
  redis.call('SET', KEYS[1], 'LHS1' .. incarnation .. cmsgpack.pack(space))
end
