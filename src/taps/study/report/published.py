"""Numbers of other people: the paper's, beside ours where set and model are its own; means of the field."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from taps.data import find_set
from taps.study.report.table import Table


@cache
def _facts(name: str) -> dict[str, Any]:
    text = files("taps.study.report.facts").joinpath(f"{name}.json").read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text)
    return facts


def published() -> dict[str, Any]:
    """The printed tables: accuracies in per cent by method and data set, and what is odd about them."""
    return _facts("published")


def published_means() -> list[Table]:
    """Means of the field as their authors print them: by kind of class texts, and on streams that drift."""
    return [
        _means(_facts(name), block, last=block == [*_facts(name)["rows"]][-1])
        for name in ("means", "streams")
        for block in _facts(name)["rows"]
    ]


def _means(facts: dict[str, Any], block: str, *, last: bool) -> Table:
    rows = []
    for name, values, given, source in facts["rows"][block]:
        cells = ("–" if value is None else f"{value:.{facts['digits']}f}" for value in values)
        rows.append((name, given, source, *cells))
    return Table(
        f"Published top-1 means with {facts['model']}, per cent: not ours; {block}",
        ("method", "given", "source", *facts["columns"]),
        tuple(rows),
        (facts["note"],) if last else (),
        left=3,
        published=frozenset(range(len(rows))),
    )


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
