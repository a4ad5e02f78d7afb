"""What is streamed: data sets, splits, orders, changed pixels.

Read first: `load.py`: a name or a path becomes a `Dataset`.
Must not know: models and learners.
"""

from taps.data.check import Check, check_dataset
from taps.data.corrupt import KINDS, corrupt, corrupt_dataset
from taps.data.dataset import Dataset, Sample
from taps.data.load import load_dataset
from taps.data.orders import domains_in_turn, few_shot, ordered_by_class, stream_order, subset_classes
from taps.data.sample import demo_dataset, sign_digits
from taps.data.sets import NamedSet, find_set, named_sets
from taps.data.survey import Finding

__all__ = [
    "KINDS",
    "Check",
    "Dataset",
    "Finding",
    "NamedSet",
    "Sample",
    "check_dataset",
    "corrupt",
    "corrupt_dataset",
    "demo_dataset",
    "domains_in_turn",
    "few_shot",
    "find_set",
    "load_dataset",
    "named_sets",
    "ordered_by_class",
    "sign_digits",
    "stream_order",
    "subset_classes",
]
