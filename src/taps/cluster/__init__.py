"""Work on a Ray cluster: evaluations, statistics, services.

Read first: `runs.py`.
Must not know: the command line.
"""
