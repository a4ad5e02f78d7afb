"""Training of prompts, and statistics of a source set.

Read first: `train.py`.
Must not know: streams.
"""
