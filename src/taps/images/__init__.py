"""Bytes to pixels, pixels to views."""

from taps.images.decode import load_image
from taps.images.views import BACKENDS, make_views, sample_crops, sample_generator

__all__ = ["BACKENDS", "load_image", "make_views", "sample_crops", "sample_generator"]
