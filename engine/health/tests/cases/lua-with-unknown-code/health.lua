return { status = "Great" }
