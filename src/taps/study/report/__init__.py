"""Pages and tables of runs and evaluations.

Read first: `pages.py`.
Must not know: how runs are made.
"""
