"""Data sets: folders, zips, manifests and the named ones; streams over them; corruptions."""

from taps.data.dataset import Dataset, Sample
from taps.data.load import load_dataset

__all__ = ["Dataset", "Sample", "load_dataset"]
