local health = { status = "Progressing", message = "Waiting for status" }
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health
end
for _, condition in ipairs(obj.status.conditions or {}) do
  if condition.type == "Ready" then
    health.status = condition.status == "True" and "Healthy" or "Progressing"
    health.message = string.format("%s: %s", condition.reason, condition.message)
  end
end
return health
