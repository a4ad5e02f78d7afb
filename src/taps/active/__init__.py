"""Whom to ask, seen from feature space: scores, a choice among them, a pace that keeps the budget."""

from taps.active.chooser import SCORES, Chooser
from taps.active.pace import Paced
from taps.active.scores import Recent, entropy, narrowness, scarcity

__all__ = ["SCORES", "Chooser", "Paced", "Recent", "entropy", "narrowness", "scarcity"]
