"""What the routes share: the service, the tokens, the limits. Kept on the application, found by request."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi import Request

from taps.serve.connections import MOST
from taps.serve.labelstudio import LabelStudio
from taps.serve.limits import Rates, Shares
from taps.serve.options import Limits
from taps.serve.repredict import Repredictor
from taps.serve.service import Service
from taps.serve.telemetry import Metrics
from taps.serve.tokens import Tokens


@dataclass
class State:
    """One running application."""

    service: Service
    tokens: Tokens
    limits: Limits
    hosts: tuple[str, ...] = ()  # names this service is called by; empty: any
    metrics: Metrics = field(default_factory=Metrics)
    studio: LabelStudio | None = None
    looks: Repredictor = field(default_factory=Repredictor)
    rates: Rates = field(init=False)
    uploads: Shares = field(init=False)
    requests: Shares = field(default_factory=lambda: Shares(MOST))

    def __post_init__(self) -> None:
        self.rates, self.uploads = Rates(self.limits.rate), Shares(self.limits.uploads)


def state_of(request: Request) -> State:
    found: State = request.app.state.taps
    return found
