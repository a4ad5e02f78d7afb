"""TAPS beside other libraries: their data sets in, their interfaces on top, their files out and back."""

from taps.adapters.csv import read_csv, write_csv
from taps.adapters.fiftyone import read_fiftyone, write_fiftyone
from taps.adapters.huggingface import from_huggingface
from taps.adapters.judged import read_run, with_labels
from taps.adapters.label_studio import label_config, read_label_studio, write_label_studio
from taps.adapters.modal import PoolLearner
from taps.adapters.river import RiverClassifier
from taps.adapters.sklearn import TapsClassifier
from taps.adapters.torch import TorchDataset, from_torch

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
