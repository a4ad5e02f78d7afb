"""Names of older versions in settings, saved learners, runs and stores, which are still read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.errors import SettingsError

NAMES = {
    "ask_by": "acquisition",
    "chooser": "acquisition",
    "expert": "annotator",
    "is_it": "yes_no",
    "is_it_seconds": "yes_no_seconds",
    "is_it_share": "yes_no_share",
    "which": "class",
    "which_seconds": "class_seconds",
    "tally": "running",
}
"""Settings and fields: old name, current name."""

OF_METHODS = {"onzeta": {"rate": "lr"}}
"""Settings that were renamed in one method only."""

VALUES = {
    "question": {"which": "class", "is_it": "yes_no"},
    "questions": {"which": "class", "is_it": "yes_no"},
    "state": {"silent": "unqueried"},
    "by": {"expert": "annotator"},
}
"""Values of fields: by field, old value, current value."""

EVENTS = {
    "predict": "predicted",
    "label": "answered",
    "repeat": "repeated",
    "skip": "skipped",
    "undo": "undone",
    "reopen": "undone",
    "expire": "expired",
    "classes": "classes_added",
    "broken": "unreadable",
    "not_corrected": "undo_failed",
}
"""Kinds of events. A log keeps its old kinds, and so its checksums; readers translate them."""


def spellings(kind: str) -> list[str]:
    """The names under which events of a kind may be recorded.

    >>> spellings("undone")
    ['undone', 'undo', 'reopen']
    """
    return [kind, *(old for old, new in EVENTS.items() if new == kind)]


def current_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """A line of a run's log under current names. A prediction of 0.2 names the likeliest classes by index.

    >>> current_event({"event": "predicted", "id": 3, "predicted": "cat", "top5": [1, 0]})
    {'event': 'predicted', 'id': 3, 'label': 'cat', 'index': 1}
    """
    new: dict[str, Any] = current(event)
    if "event" in new:
        new["event"] = EVENTS.get(new["event"], new["event"])
    if "predicted" in new:
        new |= {"label": new.pop("predicted"), "index": new.pop("top5", [None])[0]}
    return new


def current_value(name: str, value: Any) -> Any:
    """The current form of a field's value.

    >>> current_value("questions", "is_it"), current_value("label", "is_it")
    ('yes_no', 'is_it')
    """
    return VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value


def current_settings(settings: Mapping[str, Any], method: str = "") -> dict[str, Any]:
    """Settings under current names.

    >>> current_settings({"ask_by": "margin", "rate": 0.1})
    {'acquisition': 'margin', 'rate': 0.1}
    """
    names = NAMES | OF_METHODS.get(method, {})
    for old in settings.keys() & names.keys():
        if names[old] in settings:
            raise SettingsError(
                f"{old!r} is the old name of {names[old]!r}, and both are given; give {names[old]!r} alone."
            )
    new = {names.get(name, name): value for name, value in settings.items()}
    return {name: current_value(name, value) for name, value in new.items()}


def current(value: Any) -> Any:
    """What was read from a file of an older version, under current names at every depth.

    >>> current({"id": 3, "question": "is_it", "answer": {"label": 1, "expert": "Ann"}})
    {'id': 3, 'question': 'yes_no', 'answer': {'label': 1, 'annotator': 'Ann'}}
    """
    if isinstance(value, list):
        return [current(each) for each in value]
    if not isinstance(value, dict):
        return value
    given: dict[str, Any] = value
    new = {NAMES.get(name, name): current(each) for name, each in given.items()}
    return {name: current_value(name, each) for name, each in new.items()}
