"""Adapters to other libraries: their data sets, their classifier interfaces, their label files."""

from taps.adapters.classifiers import PoolLearner, RiverClassifier, TapsClassifier
from taps.adapters.datasets import TorchDataset, from_huggingface, from_torch
from taps.adapters.labels import (
    label_config,
    read_csv,
    read_fiftyone,
    read_label_studio,
    read_run,
    with_labels,
    write_csv,
    write_fiftyone,
    write_label_studio,
)

__all__ = [
    "PoolLearner",
    "RiverClassifier",
    "TapsClassifier",
    "TorchDataset",
    "from_huggingface",
    "from_torch",
    "label_config",
    "read_csv",
    "read_fiftyone",
    "read_label_studio",
    "read_run",
    "with_labels",
    "write_csv",
    "write_fiftyone",
    "write_label_studio",
]
