"""A learner predicts, asks, learns and is saved.

Read first: `learner.py`, then `desk.py` (questions, budget, answers) and `pending.py` (what waits, undo).
Must not know: data sets, files of a run, services.
"""

from taps.learner.learner import Learner

__all__ = ["Learner"]
