-- How every script ends: operation by operation.
local answers, key = { now }, 3
for n = 2, #ARGV do
  local ok, answer = pcall(run, { cmsgpack.unpack(ARGV[n]) }, KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3])
  if not ok then answer = { 'failed', type(answer) == 'table' and answer.err or tostring(answer) } end
  answers[n] = answer
  key = key + KEYS_EACH
end
return answers
