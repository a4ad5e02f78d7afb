"""What the rows of `recipes/rivals.py` come to: means, paired differences, areas under budget curves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Row = dict[str, Any]
Stream = tuple[str, int]  # set and order
Streams = dict[Stream, Row]
Kind = tuple[str, str, float, str, int]  # method, rule, rate, case, views
Curve = dict[float, Streams]  # by rate
OURS = ("view_ensemble+", "zero_shot+")  # on several views, and on one
USUAL = 0.05
CLASS_LABELS = 3  # labels a class, of a set that has enough of them at the usual rate
PER_CLASS = (1, 2, 4, 8, 16)
EQUAL_TIME = (0.05, 0.1, 0.01, 0.02)  # with more, a yes or no about every image takes less than there is
KINDS_ASKED = ("class", "yes_no", "both")  # rules: by margin, with questions of this kind
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
    most = {kind[:4]: each for kind, each in held.items() if kind[4] == views_of(kind[0], rows)}
    every = curves_of(most)
    curves = common({n: c for n, c in every.items() if (n[0], "random") in every and n[1] not in KINDS_ASKED})
    return {
        "kinds": kinds_of(held, max(row["views"] for row in rows)),
        "curves": [
            budget_figures(curve, curves.get((name[0], "random"))) | named(name)
            for name, curve in curves.items()
        ],
        "per_class": per_class(curves),
        "seconds": by_seconds(every),
        "cases": cases_of(most),
        "enough": sorted(
            {row["set"] for row in rows if USUAL * row["images"] >= CLASS_LABELS * row["classes"]}
        ),
    }


def views_of(method: str, rows: list[Row]) -> int:
    """The most views that any row of a method saw."""
    return max(row["views"] for row in rows if row["method"] == method)


def named(name: tuple[str, str]) -> dict[str, str]:
    return {"method": name[0], "rule": name[1]}


def by_kind(rows: list[Row]) -> dict[Kind, Streams]:
    """Rows of each kind by their stream, of kinds that have all sets that any kind of their case has."""
    found: dict[Kind, Streams] = {}
    for row in rows:
        kind = row["method"], row["rule"], row["rate"], row["case"], row["views"]
        found.setdefault(kind, {})[row["set"], row["order"]] = row
    wanted: dict[str, set[str]] = {}
    for row in rows:
        wanted.setdefault(row["case"], set()).add(row["set"])
    return {kind: held for kind, held in found.items() if wanted[kind[3]] <= {name for name, _ in held}}


def kinds_of(held: dict[Kind, Streams], several: int) -> dict[str, Any]:
    """Means of each method and rule at the usual rate, from ours on as many views, and over random."""
    whole = held.get(("zero_shot", "", USUAL, "", several), {}).keys()
    kinds = {}
    for (method, rule, rate, case, views), streams in held.items():
        if rate != USUAL or case or rule in KINDS_ASKED or not whole <= streams.keys():
            continue
        ours = held.get((OURS[views == 1], rule, rate, "", views), {})
        kinds[f"{method} {rule} {views}"] = {
            "method": method,
            "rule": rule,
            "views": views,
            "streams": len(streams),
            **{name: mean(streams, name) for name in MEASURES},
            "enough": mean(enough(streams), "accuracy"),
            "from_ours": paired(streams, ours),
            "over_random": paired(streams, held.get((method, "random", rate, "", views), {})),
            "by_set": by_set(streams, "accuracy"),
            "late_by_set": by_set(streams, "last_quarter"),
        }
    return kinds


def enough(streams: Streams) -> Streams:
    """The streams that have some labels of each class at the usual rate."""
    return {s: row for s, row in streams.items() if USUAL * row["images"] >= CLASS_LABELS * row["classes"]}


def mean(streams: Streams, name: str) -> float | None:
    values = [row[name] for row in streams.values() if row[name] is not None]
    return round(float(np.mean(values)), 3) if values else None


def by_set(streams: Streams, measure: str) -> dict[str, float | None]:
    """Means over the orders of each set."""
    sets = sorted({name for name, _ in streams})
    return {name: mean({s: row for s, row in streams.items() if s[0] == name}, measure) for name in sets}


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


def curves_of(held: dict[tuple[str, str, float, str], Streams]) -> dict[tuple[str, str], Curve]:
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
    """Accuracy at each rate, and the area by questions: its mean, and over that of random questions."""
    heights = areas(curve, share_asked)
    return {
        "streams": len(heights),
        "rates": list(curve),
        **{name: [mean(streams, name) for streams in curve.values()] for name in ("accuracy", "asked")},
        "area": mean_height(heights),
        "over_random": at_random and difference(heights, areas(at_random, share_asked)),
    }


def share_asked(row: Row) -> float:
    return float(row["asked"] / row["images"])


def mean_height(heights: dict[Stream, float]) -> float | None:
    return round(float(np.mean(list(heights.values()))), 3) if heights else None


def difference(one: dict[Stream, float], other: dict[Stream, float]) -> list[float] | None:
    """Mean difference over the streams both have, and its standard error."""
    return with_error([one[s] - other[s] for s in sorted(one.keys() & other.keys())])


def by_seconds(every: dict[tuple[str, str], Curve]) -> list[dict[str, Any]]:
    """Each kind of question by margin for the same time, of the methods that were asked several kinds."""
    several = {method for method, rule in every if rule in KINDS_ASKED}
    curves = common(
        {
            name: {rate: held for rate, held in curve.items() if rate in EQUAL_TIME}
            for name, curve in every.items()
            if name[0] in several and name[1] in ("margin", *KINDS_ASKED)
        }
    )
    kinds = {(name[0], kind_asked(curve)): curve for name, curve in curves.items()}
    spans = shared_seconds(list(kinds.values()))
    areas = {name: areas_between(curve, spans) for name, curve in kinds.items()}
    return [
        kind_figures(curve, areas[method, kind], areas.get((method, "class"), {}))
        | {"method": method, "questions": kind}
        for (method, kind), curve in kinds.items()
    ]


def kind_asked(curve: Curve) -> str:
    return str(next(iter(next(iter(curve.values())).values()))["questions"])


def shared_seconds(curves: list[Curve]) -> dict[Stream, tuple[float, float]]:
    """The logarithms of the least and the most seconds that all curves of a stream have."""
    logs = [
        {s: np.log([row["annotator_seconds"] for row in rows]) for s, rows in asked_rows(curve).items()}
        for curve in curves
    ]
    streams = set.intersection(*(set(each) for each in logs)) if logs else set()
    spans = {
        s: (max(each[s][0] for each in logs), min(each[s][-1] for each in logs)) for s in sorted(streams)
    }
    return {s: span for s, span in spans.items() if span[0] < span[1]}


def areas_between(curve: Curve, spans: dict[Stream, tuple[float, float]]) -> dict[Stream, float]:
    """Mean height over the logarithm of the seconds, of each stream between the two."""
    rows, found = asked_rows(curve), {}
    for stream, span in spans.items():
        x = np.log([row["annotator_seconds"] for row in rows[stream]])
        y = [row["accuracy"] for row in rows[stream]]
        found[stream] = float(np.interp(np.linspace(*span, 1001), x, y).mean())
    return found


def kind_figures(curve: Curve, heights: dict[Stream, float], classes: dict[Stream, float]) -> dict[str, Any]:
    """Accuracy at each rate, the seconds that took, and the area by seconds beside asking for the class."""
    names = "accuracy", "annotator_seconds", "asked"
    return {
        "streams": len(heights),
        "rates": list(curve),
        **{name: [mean(streams, name) for streams in curve.values()] for name in names},
        "area": mean_height(heights),
        "over_class": difference(heights, classes),
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
    found: dict[str, Any] = {"answers": list(PER_CLASS), "sets": [], "rows": []}
    values: dict[tuple[str, str], list[float | None]] = {name: [] for name in curves}
    for wanted in PER_CLASS:
        at = {name: at_answers(curve, wanted) for name, curve in curves.items()}
        both = set.intersection(*(set(each) for each in at.values())) if at else set()
        found["sets"].append(len({name for name, _ in both}))
        for name, each in at.items():
            values[name].append(mean_height({s: each[s] for s in sorted(both)}))
    areas = {name: areas_by_class(curve) for name, curve in curves.items()}
    found["rows"] = [
        named(name)
        | {
            "accuracy": each,
            "area": mean_height(areas[name]),
            "over_random": difference(areas[name], areas.get((name[0], "random"), {})),
        }
        for name, each in values.items()
    ]
    return found


def areas_by_class(curve: Curve) -> dict[Stream, float]:
    found = {stream: area_by_class(rows) for stream, rows in asked_rows(curve).items()}
    return {stream: area for stream, area in found.items() if area is not None}


def area_by_class(rows: list[Row]) -> float | None:
    """Mean height between 1 and 16 answers a class, of a stream whose budgets cover half of that."""
    at, heights = np.log([row["asked"] / row["classes"] for row in rows]), [row["accuracy"] for row in rows]
    low, high = max(0.0, at[0]), min(math.log(PER_CLASS[-1]), at[-1])
    if high - low < math.log(PER_CLASS[-1]) / 2:
        return None
    return float(np.interp(np.linspace(low, high, 101), at, heights).mean())


def at_answers(curve: Curve, wanted: float) -> dict[Stream, float]:
    """Accuracy of each stream at so many answers a class, between the budgets on either side of it."""
    found = {}
    for stream, rows in asked_rows(curve).items():
        answers = [row["asked"] / row["classes"] for row in rows]
        if min(answers) <= wanted <= max(answers):
            heights = [row["accuracy"] for row in rows]
            found[stream] = float(np.interp(math.log(wanted), np.log(answers), heights))
    return found


def cases_of(held: dict[tuple[str, str, float, str], Streams]) -> dict[str, Any]:
    """Each method in each case, on the orders of the cases; first with right answers."""
    found: dict[str, Any] = {}
    odd = dict.fromkeys(case for _, _, _, case in held if case)
    orders = {order for (_, _, _, case), each in held.items() if case for _, order in each}
    for case in ("", *odd) if odd else ():
        every = held.get(("zero_shot", "", USUAL, case), {})
        zero = {s: every[s] for s in sorted(every) if s[1] in orders}
        for (method, rule, rate, of), streams in held.items():
            if (
                zero
                and (of, rate) == (case, USUAL)
                and rule in ("", "margin")
                and zero.keys() <= streams.keys()
            ):
                found.setdefault(case or "right answers", {})[method] = case_figures(streams, zero)
    return found


def case_figures(streams: Streams, zero: Streams) -> dict[str, Any]:
    """Accuracy, and the gain over zero-shot on the set where that is least."""
    some = {s: streams[s] for s in zero}
    gains = {s: row["accuracy"] - zero[s]["accuracy"] for s, row in some.items()}
    least = min(gains, key=lambda s: gains[s])
    return {
        "sets": len(by_set(some, "accuracy")),
        "accuracy": mean(some, "accuracy"),
        "largest": mean(some, "largest"),
        "least": [least[0], round(gains[least], 3)],
    }
