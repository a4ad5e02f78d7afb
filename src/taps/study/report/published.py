"""The paper's numbers, which stand beside ours where set and model are its own."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from taps.data import find_set


@cache
def published() -> dict[str, Any]:
    """The printed tables: accuracies in per cent by method and data set, and what is odd about them."""
    text = files("taps.study.report.facts").joinpath("published.json").read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text)
    return facts


def published_accuracy(method: str, dataset: str) -> float | None:
    """Printed accuracy in per cent; `source` stands for MaPLe, whose prompts it is.

    >>> published_accuracy("taps", "dtd")
    48.02
    """
    found = find_set(dataset)
    if found is None:
        return None
    wanted = "maple" if method == "source" else method
    for table in published()["tables"].values():
        if found.id in table["datasets"] and wanted in table["rows"]:
            value: float | None = table["rows"][wanted][table["datasets"].index(found.id)]
            return value
    return None


def is_papers_model(name: str, pretrained: str | None) -> bool:
    """Whether results of this model may be put beside the paper's."""
    facts = published()
    if name == facts["model"]:
        return pretrained in (None, facts["weights"])
    return name == "openai/clip-vit-base-patch16"
