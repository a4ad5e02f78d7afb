"""The paper's tables and ablations as runs of one evaluation, and the page that puts them beside its numbers.

Read first: `parts.py` (what is run), then `plan.py` (on which sets) and `page.py` (what is shown).
"""
