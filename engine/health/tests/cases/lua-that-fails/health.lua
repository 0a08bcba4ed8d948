return { status = obj.status.phase }
