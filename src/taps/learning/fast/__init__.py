"""The parts of the step captured as CUDA graphs, on two streams; nothing is computed here.

Read first: `engine.py`, which is all that a method knows of it.
Must not know: which method it serves.
"""

from taps.learning.fast.engine import ENGINES, Engine, Start, batch_size, report, shared_start

__all__ = ["ENGINES", "Engine", "Start", "batch_size", "report", "shared_start"]
