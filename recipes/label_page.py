"""The tables and the picture of `recipes/label.py`: writes docs/results/label-tables.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from label import CHOOSING, DRAWN, FAR, NEAR, ODD_SETS, SITUATIONS, VIEWS, VOTES
from provenance import made_by

Rows = list[dict[str, Any]]
Sets = tuple[str, ...]
T975 = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776}  # Student's t, by degrees of freedom
HEAD = "view_ensemble+"
RATES = (0.01, 0.02, 0.05, 0.1, 0.2)


def chosen(rows: Rows, method: str, rate: float | None = None, **more: Any) -> Rows:
    """Rows of one method and rate, of right answers in random order to a whole stream unless said."""
    wanted = {
        "noise": 0.0,
        "sorted": False,
        "limit": None,
        "acquisition": None,
        "vote": None,
        "questions": None,
    }
    wanted |= more
    return [
        row
        for row in rows
        if row["method"] == method
        and row["settings"].get("rate") == rate
        and all((row | row["settings"]).get(name) == value for name, value in wanted.items())
    ]


def by_order(rows: Rows, sets: Sets, field: str = "accuracy") -> np.ndarray:
    """Mean over the sets, for each order that has them all."""
    table: dict[int, dict[str, float]] = {}
    for row in rows:
        table.setdefault(row["order"], {})[row["set"]] = row[field]
    return np.array([np.mean([t[s] for s in sets]) for t in table.values() if all(s in t for s in sets)])


def half_width(values: np.ndarray) -> float:
    return T975.get(len(values) - 1, 1.96) * float(values.std(ddof=1)) / float(np.sqrt(len(values)))


def cell(rows: Rows, sets: Sets) -> str:
    values = by_order(rows, sets)
    if not len(values):
        return "–"
    # Two orders make no interval worth the name; what learns nothing says the same in every order.
    spread = len(values) > 2 and values.std() > 1e-9
    return f"{values.mean():.1f} ± {half_width(values):.1f}" if spread else f"{values.mean():.1f}"


def table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])


def accuracy_table(named: dict[str, Rows], sets: Sets) -> str:
    lines = [[name, *(cell(rows, (s,)) for s in sets), cell(rows, sets)] for name, rows in named.items()]
    marked = [f"{name}*" if name in CHOOSING else name for name in sets]
    return table(["", *marked, "mean"], lines)


def difference(one: Rows, other: Rows, sets: Sets) -> str:
    """Paired by order: mean difference over the sets and its interval."""
    a, b = by_order(one, sets), by_order(other, sets)
    apart = a - (b if len(b) == len(a) else b[0])
    return f"{apart.mean():+.1f} ± {half_width(apart):.1f}"


def main_parts(rows: Rows) -> dict[str, str]:
    """The first tables and what they come to."""
    named = {
        "zero-shot": chosen(rows, "zero_shot"),
        "`view_ensemble`": chosen(rows, "view_ensemble"),
        "`zero_shot+`, one view": chosen(rows, "zero_shot+", 0.05),
        f"`{HEAD}`": chosen(rows, HEAD, 0.05),
        "the same, asked by margin": chosen(rows, HEAD, 0.05, acquisition="margin"),
        "the same, asked at random": chosen(rows, HEAD, 0.05, acquisition="random"),
        "DOTA with the labels": chosen(rows, "dota_labels", 0.05),
        "linear probe, labels first": chosen(rows, "probe", 0.05),
    }
    now = chosen(rows, HEAD, 0.05)
    return {
        "far": accuracy_table(named, FAR),
        "drawn": accuracy_table(named, DRAWN),
        "asked": f"{np.mean([100 * row['asked'] / row['images'] for row in now]):.1f} %",
    }


def harm_table(rows: Rows) -> str:
    """By how much streams differ from zero-shot, at worst, in the mean of orders and in any one."""
    zero = {row["set"]: row["accuracy"] for row in chosen(rows, "zero_shot")}
    cases = {
        "right answers": chosen(rows, HEAD, 0.05),
        "20 % wrong": chosen(rows, HEAD, 0.05, noise=0.2),
        "40 % wrong": chosen(rows, HEAD, 0.05, noise=0.4),
        "class after class": chosen(rows, HEAD, 0.05, sorted=True),
        'right answers, `questions="both"`': chosen(rows, HEAD, 0.05, questions="both"),
    }
    lines = []
    for name, some in cases.items():
        gains = {s: [r["accuracy"] - zero[s] for r in some if r["set"] == s] for s in FAR + DRAWN + NEAR}
        means = {s: float(np.mean(values)) for s, values in gains.items() if values}
        least = min(means, key=lambda s: means[s])
        single, where = min((min(values), s) for s, values in gains.items() if values)
        lines.append(
            [
                name,
                *(f"{np.mean([means[s] for s in sets]):+.1f}" for sets in (FAR, DRAWN, NEAR)),
                f"{means[least]:+.1f} ({least})",
                f"{single:+.1f} ({where})",
                f"{len(some)}",
            ]
        )
    return table(
        ["answers", "far", "Caltech, PACS", "near", "least, mean of orders", "least, one", "streams"], lines
    )


def situation_table(rows: Rows) -> str:
    """Streams out of the ordinary, with and without the head."""
    names = {"": "right answers", "wrong": "40 % wrong", "wrong partner": "40 % wrong, as the next class"}
    lines = []
    for situation in SITUATIONS:
        now = [row for row in rows if row["situation"] == situation]
        plain, head = ([row for row in now if row["method"] == m] for m in ("view_ensemble", HEAD))
        apart = {s: float((by_order(head, (s,)) - by_order(plain, (s,))).mean()) for s in ODD_SETS}
        least = min(apart, key=lambda s: apart[s])
        cells = (cell(each, ODD_SETS) for each in (plain, head))
        lines.append([names.get(situation, situation), *cells, f"{apart[least]:+.1f} ({least})"])
    return table(["", "`view_ensemble`", f"`{HEAD}`", "least"], lines)


def curve_table(rows: Rows) -> str:
    lines = []
    for rate in RATES:
        pairs = [(chosen(rows, method, rate), sets) for sets in (FAR, DRAWN) for method in (HEAD, "probe")]
        lines.append([f"{100 * rate:g} %", *(cell(some, sets) for some, sets in pairs)])
    names = [f"`{HEAD}`", "linear probe, labels first"]
    return table(["labels", *(f"far: {n}" for n in names), *(f"Caltech, PACS: {n}" for n in names)], lines)


def question_table(rows: Rows, sets: Sets) -> str:
    """Kinds of questions at the same seconds of the annotator's time."""
    kinds = {"which class": None, "is it this one": "yes_no", "what tells more a second": "both"}
    lines: list[list[str]] = []
    for name, kind in kinds.items():
        some = [row for row in chosen(rows, HEAD, 0.05, questions=kind) if row["set"] in sets]
        counts = [np.mean([row["put"][each] for row in some]) for each in ("class", "yes_no")]
        spent = np.mean([row["expert_seconds"] for row in some])
        put = [f"{counts[0]:.0f} + {counts[1]:.0f}", f"{spent:.0f}"]
        lines.append([name, *put, *(cell(some, (s,)) for s in sets), cell(some, sets)])
    return table(["asked", "questions", "seconds", *sets, "mean"], lines)


def tau_table(rows: Rows) -> str:
    """Neighbours without labels by weight of the vote, half of the sets after the other."""
    named = {f"{tau:g}": chosen(rows, "neighbours", vote=tau) for tau in VOTES}
    named["√(10/K), at most 1"] = [row for row in chosen(rows, "neighbours") if row["order"] == 0]
    found = {row["set"]: row["classes"] for row in chosen(rows, "neighbours", vote=0.5)}
    sets = tuple(sorted(found, key=lambda s: (s not in CHOOSING, found[s])))
    lines = [[name, *(cell(some, (s,)) for s in sets)] for name, some in named.items()]
    marked = [f"{s}{'*' if s in CHOOSING else ''} ({found[s]})" for s in sets]
    return table(["τ", *marked], lines)


def orders_of(rows: Rows) -> str:
    """How many orders each part of the page has, of the sets it is about."""
    parts = {
        "5 % labels": (chosen(rows, HEAD, 0.05), FAR + DRAWN + NEAR),
        "other shares": (chosen(rows, HEAD, 0.01) + chosen(rows, HEAD, 0.2), FAR + DRAWN),
        "asked otherwise": (chosen(rows, HEAD, 0.05, acquisition="margin"), FAR + DRAWN),
        "anchors": (chosen(rows, "probe", 0.05), FAR + DRAWN),
        "20 % wrong answers": (chosen(rows, HEAD, 0.05, noise=0.2), FAR + DRAWN + NEAR),
        "40 % wrong answers": (chosen(rows, HEAD, 0.05, noise=0.4), FAR + DRAWN + NEAR),
        "class after class": (chosen(rows, HEAD, 0.05, sorted=True), FAR + DRAWN + NEAR),
    }
    found = {name: min(len({r["order"] for r in some if r["set"] == s}) for s in sets)
             for name, (some, sets) in parts.items()}  # fmt: skip
    return ", ".join(f"{name} {count}" for name, count in found.items())


def vote_table(rows: Rows, sets: Sets) -> str:
    named = {f"`{m}`": chosen(rows, m) for m in ("zero_shot", "view_ensemble")}
    named["`neighbours`"] = chosen(rows, "neighbours")
    lines = [[name, *(cell(some, (s,)) for s in sets)] for name, some in named.items()]
    return table(["", *sets], lines)


def vote_gains(rows: Rows) -> str:
    """By how much `neighbours` differs from `view_ensemble`, in words."""
    sets = FAR + DRAWN + NEAR
    ways = [chosen(rows, method) for method in ("neighbours", "view_ensemble")]
    gains = {s: float(by_order(ways[0], (s,)).mean() - by_order(ways[1], (s,)).mean()) for s in sets}
    lost = ", ".join(f"{s} {gain:+.1f}" for s, gain in gains.items() if gain < 0)
    better = sum(gain > 0 for gain in gains.values())
    return f"{np.mean([*gains.values()]):+.1f} in the mean, better on {better} of {len(sets)}; worse: {lost}"


def prompts_table(rows: Rows) -> str:
    named = {f"`{m}`": chosen(rows, m, 0.05, limit=600) for m in (HEAD, "taps+")}
    lines = [[name, *(cell(some, (s,)) for s in FAR), cell(some, FAR)] for name, some in named.items()]
    return table(["", *FAR, "mean"], lines)


def time_table(file: Path) -> str:
    found = json.loads(file.read_text())
    names = ("image_ms", "first_images_ms", "first_mean_ms", "label_ms")
    lines = [
        [classes, *(f"{row[name]:.2f}" if name in row else "–" for name in names)]
        for classes, row in found.items()
    ]
    return table(
        ["classes", "an image, ms", "one of the first 512, ms", "their mean, ms", "a label, ms"], lines
    )


def write_page(out: Path, docs: Path, read_rows: Callable[[Path], Rows], made: str | None) -> None:
    """docs/results/label-tables.md: recipes/label_page.md with the tables in it, and the figure."""
    from label_figures import draw

    rows, odd = (read_rows(out / name) for name in ("rows.jsonl", "situations.jsonl"))
    sizes = {row["set"]: row["images"] for row in chosen(rows, "zero_shot")}
    both = chosen(rows, HEAD, 0.05, questions="both")
    groups = {"far": FAR, "drawn": DRAWN, "near": NEAR}
    parts = main_parts(rows) | {
        "made": made_by("recipes/label.py page", made),
        "harm": harm_table(rows),
        "curve": curve_table(rows),
        "situations": situation_table(odd),
        "odd_sets": ", ".join(ODD_SETS),
        "odd_orders": str(len({row["order"] for row in odd})),
        "votes_far": vote_table(rows, FAR),
        "votes_drawn": vote_table(rows, DRAWN),
        "votes_near": vote_table(rows, NEAR),
        "questions_far": question_table(rows, FAR),
        "questions_drawn": question_table(rows, DRAWN),
        **{f"both_{name}": difference(both, chosen(rows, HEAD, 0.05), sets) for name, sets in groups.items()},
        "taus": tau_table(rows),
        "vote_gains": vote_gains(rows),
        "orders": orders_of(rows),
        "prompts": prompts_table(rows),
        "time": time_table(out / "time.json"),
        "views": str(VIEWS),
        "sizes": ", ".join(f"{name} {count:,}" for name, count in sizes.items()),
        "chosen_on": ", ".join(CHOOSING),
        "near": ", ".join(NEAR),
    }
    text = (Path(__file__).parent / "label_page.md").read_text()
    for name, value in parts.items():
        text = text.replace("{" + name + "}", value)
    (docs / "results").mkdir(exist_ok=True)
    (docs / "results" / "label-tables.md").write_text(text)
    panels = {"far sets": FAR, "Caltech101 and PACS": DRAWN}
    lines = {
        panel: {
            "with the head": [by_order(chosen(rows, HEAD, rate), sets).mean() for rate in RATES],
            "linear probe, labels first": [
                by_order(chosen(rows, "probe", rate), sets).mean() for rate in RATES
            ],
            "zero-shot": [by_order(chosen(rows, "zero_shot"), sets).mean()] * len(RATES),
        }
        for panel, sets in panels.items()
    }
    points = {"DOTA with the labels": chosen(rows, "dota_labels", 0.05)}
    at_5 = {
        panel: {name: float(by_order(some, sets).mean()) for name, some in points.items()}
        for panel, sets in panels.items()
    }
    draw(docs / "figures" / "label-curve.png", [100 * rate for rate in RATES], lines, at_5)
