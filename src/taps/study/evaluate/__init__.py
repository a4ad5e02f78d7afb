"""Evaluations: which runs, how each is made, and what is measured of them.

Read first: `plan.py`, then `jobs.py` and `evaluate.py`.
Must not know: how pages look.
"""
