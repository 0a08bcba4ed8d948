return { status = "Healthy" }
