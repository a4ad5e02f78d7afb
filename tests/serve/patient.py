"""What gives up after some seconds waits as long as it takes in tests: the machine may be slow."""

from taps.serve import database, run, second_look, service
from taps.serve.routes import predict

LONG = 300  # seconds

database.PATIENCE = run.GRACE = LONG
service.PATIENCE = second_look.SECONDS = predict.BODY_SECONDS = float(LONG)
