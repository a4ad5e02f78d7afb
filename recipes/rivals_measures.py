"""What the rows of `recipes/rivals.py` come to: means, paired differences, areas under budget curves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Row = dict[str, Any]
Stream = tuple[str, int]  # set and order
Streams = dict[Stream, Row]
Kind = tuple[str, str, float, str]  # method, rule, rate, case
Curve = dict[float, Streams]  # by rate
OURS = ("view_ensemble+", "zero_shot+")
USUAL = 0.05
PER_CLASS = (1, 2, 4, 8, 16)
MEASURES = (
    "accuracy",
    "first",
    "last_quarter",
    "again",
    "asked",
    "asked_wrong",
    "annotator_seconds",
    "milliseconds",
)


def figures(rows: list[Row]) -> dict[str, Any]:
    """All that the page shows; kinds of which a set is missing are left out."""
    held = by_kind(rows)
    curves = common(curves_of(held))
    return {
        "kinds": kinds_of(held),
        "curves": [
            budget_figures(curve, curves.get((name[0], "random"))) | named(name)
            for name, curve in curves.items()
        ],
        "per_class": per_class(curves),
        "cases": cases_of(held),
    }


def named(name: tuple[str, str]) -> dict[str, str]:
    return {"method": name[0], "rule": name[1]}


def by_kind(rows: list[Row]) -> dict[Kind, Streams]:
    """Rows of each kind by their stream, of kinds that have all sets that zero-shot has."""
    found: dict[Kind, Streams] = {}
    for row in rows:
        kind = row["method"], row["rule"], row["rate"], row["case"]
        found.setdefault(kind, {})[row["set"], row["order"]] = row
    wanted = {name for name, _ in found.get(("zero_shot", "", USUAL, ""), {})}
    return {kind: held for kind, held in found.items() if wanted <= {name for name, _ in held}}


def kinds_of(held: dict[Kind, Streams]) -> dict[str, Any]:
    """Means of each method and rule at the usual rate, from ours and over random questions."""
    whole = held.get(("zero_shot", "", USUAL, ""), {}).keys()
    kinds = {}
    for (method, rule, rate, case), streams in held.items():
        if rate != USUAL or case or not whole <= streams.keys():
            continue
        kinds[f"{method} {rule}".strip()] = {
            "method": method,
            "rule": rule,
            "streams": len(streams),
            **{name: mean(streams, name) for name in MEASURES},
            "from_ours": paired(streams, held.get((OURS[0], rule, rate, ""), {})),
            "over_random": paired(streams, held.get((method, "random", rate, ""), {})),
            "by_set": {name: mean_of_set(streams, name) for name in sorted({s for s, _ in streams})},
        }
    return kinds


def mean(streams: Streams, name: str) -> float | None:
    values = [row[name] for row in streams.values() if row[name] is not None]
    return round(float(np.mean(values)), 3) if values else None


def mean_of_set(streams: Streams, name: str) -> float:
    return round(float(np.mean([row["accuracy"] for (s, _), row in streams.items() if s == name])), 3)


def paired(one: Streams, other: Streams) -> list[float] | None:
    """Mean difference in accuracy over the streams both have, and its standard error."""
    return with_error([one[s]["accuracy"] - other[s]["accuracy"] for s in one.keys() & other.keys()])


def with_error(values: list[float]) -> list[float] | None:
    if len(values) < 2:
        return None
    return [
        round(float(np.mean(values)), 3),
        round(float(np.std(values, ddof=1) / math.sqrt(len(values))), 3),
    ]


def curves_of(held: dict[Kind, Streams]) -> dict[tuple[str, str], Curve]:
    """What each method and rule did at each rate, of those that were run at three rates or more."""
    found: dict[tuple[str, str], Curve] = {}
    for method, rule, rate, case in sorted(held):
        if not case:
            found.setdefault((method, rule), {})[rate] = held[method, rule, rate, case]
    return {name: curve for name, curve in found.items() if len(curve) >= 3}


def common(curves: dict[tuple[str, str], Curve]) -> dict[tuple[str, str], Curve]:
    """The same of the streams that all have at the rates that all have."""
    if not curves:
        return {}
    rates = sorted(set.intersection(*(set(curve) for curve in curves.values())))
    shared = set.intersection(*(set(curve[rate]) for curve in curves.values() for rate in rates))
    return {
        name: {rate: {s: curve[rate][s] for s in sorted(shared)} for rate in rates}
        for name, curve in curves.items()
    }


def budget_figures(curve: Curve, at_random: Curve | None) -> dict[str, Any]:
    """Accuracy at each rate, and areas: in questions, in seconds, and over those of random questions."""
    asked, took = (lambda row: row["asked"] / row["images"]), (lambda row: row["annotator_seconds"])
    heights = areas(curve, took)
    return {
        "streams": len(heights),
        "rates": list(curve),
        "accuracy": [mean(streams, "accuracy") for streams in curve.values()],
        "seconds": [mean(streams, "annotator_seconds") for streams in curve.values()],
        "asked": [mean(streams, "asked") for streams in curve.values()],
        "by_questions": round(float(np.mean(list(areas(curve, asked).values()))), 3),
        "by_seconds": round(float(np.mean(list(heights.values()))), 3),
        "over_random": at_random
        and with_error([heights[s] - h for s, h in areas(at_random, took).items() if s in heights]),
    }


def areas(curve: Curve, budget: Callable[[Row], float]) -> dict[Stream, float]:
    """Mean height of accuracy over the logarithm of the budget, of each stream: doublings count alike."""
    found = {}
    for stream, rows in asked_rows(curve).items():
        x, y = np.log([budget(row) for row in rows]), np.array([row["accuracy"] for row in rows])
        found[stream] = float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2) / (x[-1] - x[0]))
    return found


def asked_rows(curve: Curve) -> dict[Stream, list[Row]]:
    """Rows of each stream, the smallest budget first; a budget that bought no question has no logarithm."""
    rows = {s: [held[s] for held in curve.values() if held[s]["asked"]] for s in next(iter(curve.values()))}
    return {stream: some for stream, some in rows.items() if some and some[0]["asked"] < some[-1]["asked"]}


def per_class(curves: dict[tuple[str, str], Curve]) -> dict[str, Any]:
    """Accuracy at 1 to 16 answers a class, over the streams whose budgets reach from below to above that."""
    shown = {name: curve for name, curve in curves.items() if name[1] in ("random", "margin")}
    found: dict[str, Any] = {"answers": list(PER_CLASS), "sets": [], "rows": []}
    values: dict[tuple[str, str], list[float | None]] = {name: [] for name in shown}
    for wanted in PER_CLASS:
        at = {name: at_answers(curve, wanted) for name, curve in shown.items()}
        both = set.intersection(*(set(each) for each in at.values())) if at else set()
        found["sets"].append(len({name for name, _ in both}))
        for name, each in at.items():
            height = float(np.mean([each[s] for s in sorted(both)])) if both else None
            values[name].append(None if height is None else round(height, 3))
    found["rows"] = [named(name) | {"accuracy": each} for name, each in values.items()]
    return found


def at_answers(curve: Curve, wanted: float) -> dict[Stream, float]:
    """Accuracy of each stream at so many answers a class, between the budgets on either side of it."""
    found = {}
    for stream, rows in asked_rows(curve).items():
        answers = [row["asked"] / row["classes"] for row in rows]
        if min(answers) <= wanted <= max(answers):
            heights = [row["accuracy"] for row in rows]
            found[stream] = float(np.interp(math.log(wanted), np.log(answers), heights))
    return found


def cases_of(held: dict[Kind, Streams]) -> dict[str, Any]:
    """Accuracy of each method in each case, and its gain over zero-shot on the set where that is least."""
    found: dict[str, Any] = {}
    odd = dict.fromkeys(case for _, _, _, case in held if case)
    if not odd:
        return found
    streams = set.intersection(*(set(each) for (_, _, _, case), each in held.items() if case))
    for case in ("", *odd):
        zero = held.get(("zero_shot", "", USUAL, case), {})
        for (method, rule, rate, of), every in held.items():
            if of == case and rate == USUAL and rule in ("", "margin") and streams <= every.keys():
                some = {s: every[s] for s in sorted(streams)}
                gains = {s: row["accuracy"] - zero[s]["accuracy"] for s, row in some.items()}
                least = min(gains, key=lambda s: gains[s])
                found.setdefault(case or "right answers", {})[method] = {
                    "accuracy": mean(some, "accuracy"),
                    "largest": mean(some, "largest"),
                    "least": [least[0], round(gains[least], 3)],
                }
    return found
