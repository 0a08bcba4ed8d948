local list = obj.status.failures
local text = table.getn(list) .. " failures, first " .. list[1] .. ", count is whole: " .. tostring(#list)
return { status = "Degraded", message = text }
