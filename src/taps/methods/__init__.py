"""One file a method, and a registry they enter themselves into."""

from taps.adapt.memory import ReplayItem
from taps.methods.base import HeadInputs, Method, MethodOutput, Snapshot
from taps.methods.ranges import setting
from taps.methods.registry import find_method, list_methods, method, method_settings
from taps.methods.settings import Asking, Settings, TextSettings, ViewSettings

__all__ = [
    "Asking",
    "HeadInputs",
    "Method",
    "MethodOutput",
    "ReplayItem",
    "Settings",
    "Snapshot",
    "TextSettings",
    "ViewSettings",
    "find_method",
    "list_methods",
    "method",
    "method_settings",
    "setting",
]
