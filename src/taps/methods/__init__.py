"""The public interface of methods, the paper's, those of its tables, and any of them with a label head.

Read first: `taps.py`: the paper as a function that runs; `base.py`: what a method is.
Must not know: learners, data sets and services.
"""

from taps.learning.memory import ReplayItem
from taps.methods.base import BatchedMethod, HeadInputs, Method, MethodOutput, Snapshot
from taps.methods.features import EncodedImage, FeatureMethod, State
from taps.methods.registry import find_method, list_methods, method, method_settings
from taps.methods.settings import (
    Asking,
    AskSettings,
    Settings,
    TextSettings,
    TuneSettings,
    ViewSettings,
    reset_setting,
    setting,
)

__all__ = [
    "AskSettings",
    "Asking",
    "BatchedMethod",
    "EncodedImage",
    "FeatureMethod",
    "HeadInputs",
    "Method",
    "MethodOutput",
    "ReplayItem",
    "Settings",
    "Snapshot",
    "State",
    "TextSettings",
    "TuneSettings",
    "ViewSettings",
    "find_method",
    "list_methods",
    "method",
    "method_settings",
    "reset_setting",
    "setting",
]
