"""One file a method, and a registry they enter themselves into."""

from taps.adapt.memory import ReplayItem
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
