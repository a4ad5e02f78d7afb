"""Speed and memory of the step, against the published way of computing it.

Read first: `step.py`; `reference_step.py` is the published way.
Must not know: data sets.
"""
