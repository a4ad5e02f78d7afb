"""TAPS: test-time active prompt learning for vision-language models on single-sample streams."""

from taps.clip import load_clip

__all__ = ["load_clip"]
__version__ = "0.1.0"
