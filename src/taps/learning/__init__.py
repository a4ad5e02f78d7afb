"""The paper's equations, once: losses, gradient, memory, alignment, optimiser, step.

Read first: `step.py`, then `losses.py` and `memory.py`.
Must not know: learners, questions and budgets.
"""
