return {status = 'Healthy', message = 'all is well'}
