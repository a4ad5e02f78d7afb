"""Bytes become pixels, and pixels views.

Read first: `views.py`; `decode.py` refuses what is no image.
Must not know: the model that looks at the views.
"""

from taps.model.images.decode import load_image
from taps.model.images.views import BACKENDS, make_views, sample_crops, sample_generator

__all__ = ["BACKENDS", "load_image", "make_views", "sample_crops", "sample_generator"]
