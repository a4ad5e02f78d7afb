"""What a researcher needs: many runs, their statistics and pages, training, benchmarks.

Read first: `evaluate/evaluate.py`.
Must not know: the service.
"""
