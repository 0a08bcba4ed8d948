if obj.spec.replicas == 0 then
  return { status = "Suspended", message = "nobody home" }
end
return { status = "Healthy" }
