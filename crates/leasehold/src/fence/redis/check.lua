
local answer, remember = judge()
if remember then remember() end
return answer
