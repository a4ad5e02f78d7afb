"""Whom to ask, seen from feature space: scores, a choice among them, a pace that keeps the budget."""

from taps.selection.chooser import SCORES, Chooser
from taps.selection.pace import Paced
from taps.selection.scores import Recent, entropy, narrowness, scarcity

__all__ = ["SCORES", "Chooser", "Paced", "Recent", "entropy", "narrowness", "scarcity"]
