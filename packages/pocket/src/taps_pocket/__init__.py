"""A small CLIP, prompts trained for it, and images to try it on: data alone, read by `taps`."""

__version__ = "1.0.0"
