"""What gives up after some seconds waits as long as it takes in tests: the machine may be slow."""

from taps.serve import connections, database, middleware, repredict, run, service

LONG = 300  # seconds

database.PATIENCE = run.GRACE = LONG
service.PATIENCE = repredict.SECONDS = middleware.BODY_SECONDS = float(LONG)
connections.HEAD_SECONDS = connections.STALL_SECONDS = float(LONG)
