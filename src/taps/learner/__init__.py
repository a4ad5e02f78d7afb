"""A learner predicts, asks, learns and is saved.

Read first: `learner.py`, then `pending.py` (open questions, undo) and `answers.py`.
Must not know: data sets, files of a run, services.
"""

from taps.learner.learner import Learner

__all__ = ["Learner"]
