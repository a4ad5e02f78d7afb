"""The loop over images, who answers, and the record of a run.

Read first: `loop.py`, then `annotators/base.py` and `record.py`.
Must not know: studies and services.
"""
