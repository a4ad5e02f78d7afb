"""TAPS: test-time active prompt learning for vision-language models on single-sample streams."""

from taps.clip import load_clip
from taps.learner import Learner

__all__ = ["Learner", "load_clip"]
__version__ = "0.1.0"
