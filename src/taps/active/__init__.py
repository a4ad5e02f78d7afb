"""Which images to ask about (policies, scores) and which labelled ones to keep (the buffer). No torch."""

from taps.active.chooser import SCORES, Chooser
from taps.active.pace import Paced
from taps.active.question import Questions, which_seconds
from taps.active.scores import narrowness, scarcity

__all__ = ["SCORES", "Chooser", "Paced", "Questions", "narrowness", "scarcity", "which_seconds"]
