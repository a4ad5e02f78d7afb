"""Methods of other papers, written as a plugin of a stranger would be.

Read first: any of them: one file each.
Must not know: each other, but for their common bases (`labelled.py`, `stepwise.py`, `tower.py`,
`window.py`).
"""
