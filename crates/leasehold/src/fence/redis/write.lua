
-- KEYS[2…] the keys of the command; ARGV[7…] the command itself. It is run only when admitted; when it fails nothing is remembered.
local answer, remember = judge()
if not remember then return answer end
local result = redis.pcall(unpack(ARGV, 7))
if type(result) == 'table' and result.err then return result end
remember()
return {'admitted', result}
