"""Which images to ask about (policies, scores) and which labelled ones to keep (the buffer). No torch."""

from taps.active.acquisition import SCORES, Acquisition
from taps.active.query_rate import Paced
from taps.active.question import Questions, class_seconds
from taps.active.scores import narrowness, scarcity

__all__ = ["SCORES", "Acquisition", "Paced", "Questions", "class_seconds", "narrowness", "scarcity"]
