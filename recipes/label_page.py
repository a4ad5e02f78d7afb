"""The page and pictures of `recipes/label.py`: docs/label.md is written by this and by nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Rows = list[dict[str, Any]]
T975 = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262}  # Student's t, by degrees of freedom
RULE_WORDS = {
    "random": "at random",
    "entropy": "entropy of the confident views (Algorithm 1's score)",
    "margin": "narrow margin",
    "leverage": "new direction (leverage of the ridge)",
    "coverage": "classes with few labels",
    "density": "uncertain and typical",
}


def chosen(rows: Rows, method: str, noise: float = 0.0, **settings: Any) -> Rows:
    """Rows of one method, with these settings where it has them."""
    kept = [row for row in rows if row["method"] == method and row["noise"] == noise]
    return [row for row in kept if all(row["settings"].get(k) == v for k, v in settings.items())]


def by_order(rows: Rows, field: str = "accuracy", sets: list[str] | None = None) -> np.ndarray:
    """Mean over the sets, for each order."""
    wanted = sets or sorted({row["set"] for row in rows})
    table: dict[int, dict[str, float]] = {}
    for row in rows:
        table.setdefault(row["order"], {})[row["set"]] = row[field]
    return np.array([np.mean([t[s] for s in wanted]) for t in table.values() if all(s in t for s in wanted)])


def half_width(values: np.ndarray) -> float:
    if len(values) < 2:
        return float("nan")
    return T975.get(len(values) - 1, 1.96) * float(values.std(ddof=1)) / float(np.sqrt(len(values)))


def cell(rows: Rows, sets: list[str], field: str = "accuracy") -> str:
    values = by_order(rows, field, sets)
    if not len(values):
        return "–"
    # What learns nothing says the same in every order: an interval over orders would say nothing.
    spread = len(values) > 1 and values.std() > 1e-9
    return f"{values.mean():.1f} ± {half_width(values):.1f}" if spread else f"{values.mean():.1f}"


def table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])


def inside(rows: Rows) -> Rows:
    """What the method inside the head said in the same runs, at the same labels."""
    nothing = {"loss": float("nan"), "calibration_error": float("nan")}  # those in the row are the head's
    return [row | nothing | {"accuracy": row["accuracy_inside"]} for row in rows]


def for_each_order(rows: Rows, orders: int) -> Rows:
    """Methods that learn nothing give the same in every order and were run in one."""
    return [row | {"order": order} for row in rows for order in range(orders)]


def difference(one: Rows, other: Rows, sets: list[str]) -> str:
    """Paired by order: mean difference over the sets and its interval."""
    a, b = by_order(one, sets=sets), by_order(other, sets=sets)
    count = min(len(a), len(b))
    if not count:
        return "–"
    return f"{(a[:count] - b[:count]).mean():+.1f} ± {half_width(a[:count] - b[:count]):.1f}"


def worst(one: Rows, other: Rows, sets: list[str]) -> str:
    """The set on which the first gains least over the second."""
    gains = {s: by_order(one, sets=[s]).mean() - by_order(other, sets=[s]).mean() for s in sets}
    name = min(gains, key=lambda s: gains[s])
    return f"{gains[name]:+.1f} ({name})"


def accuracy_table(named: dict[str, Rows], sets: list[str]) -> str:
    lines = []
    for name, rows in named.items():
        asked = np.mean([100 * row["asked"] / row["images"] for row in rows]) if rows else 0.0
        loss, error = by_order(rows, "loss", sets), by_order(rows, "calibration_error", sets)
        measures = [f"{loss.mean():.2f}", f"{error.mean():.1f}"] if np.isfinite(loss).any() else ["–", "–"]
        lines.append([name, f"{asked:.1f} %", *(cell(rows, [s]) for s in sets), cell(rows, sets), *measures])
    return table(["method", "asked", *sets, "mean", "log-loss", "calibration error"], lines)


def long_table(rows: Rows, sets: list[str]) -> str:
    """zero_shot+ by share of labels."""
    named = {"zero_shot": for_each_order(chosen(rows, "zero_shot"), len({row["order"] for row in rows}))}
    for rate in (0.01, 0.02, 0.05, 0.10):
        named[f"zero_shot+ at {100 * rate:g} %"] = chosen(rows, "zero_shot+", rate=rate, ask_by=None)
    return accuracy_table(named, sets)


def rule_table(rows: Rows, sets: list[str], default: str) -> str:
    lines = []
    at_random = chosen(rows, "zero_shot+", rate=0.05, ask_by=None if default == "random" else "random")
    for rule, words in RULE_WORDS.items():
        some = chosen(rows, "zero_shot+", rate=0.05, ask_by=None if rule == default else rule)
        measures = [cell(some, sets, field).split(" ±")[0] for field in ("calibration_error",)]
        loss = by_order(some, "loss", sets)
        asked = np.mean([100 * row["asked"] / row["images"] for row in some]) if some else 0.0
        lines.append(
            [
                f"`{rule}`: {words}",
                f"{asked:.1f} %",
                *(cell(some, [s]) for s in sets),
                cell(some, sets),
                "" if rule == "random" else difference(some, at_random, sets),
                f"{loss.mean():.3f}" if len(loss) else "–",
                *measures,
            ]
        )
    return table(["asked by", "asked", *sets, "mean", "to random", "log-loss", "calibration error"], lines)


def noise_table(rows: Rows, sets: list[str]) -> str:
    lines = []
    zero = chosen(rows, "zero_shot")
    base = {row["set"]: row["accuracy"] for row in zero}
    for name, noise in (("all right", 0.0), ("20 % at random", 0.2), ("40 % at random", 0.4)):
        some = chosen(rows, "zero_shot+", noise, rate=0.05, ask_by=None)
        told = [[row["summary"].get(f"head_{what}") for row in some] for what in ("trust", "gain", "noise")]
        summed = [f"{np.mean(values):.2f}" if values and None not in values else "–" for values in told]
        lost = [row["accuracy"] - base[row["set"]] for row in some]
        far = f"{sum(value < -1 for value in lost)} of {len(lost)}"
        lines.append(
            [name, *(cell(some, [s]) for s in sets), cell(some, sets), f"{min(lost):+.1f}", far, *summed]
        )
    lines.append(["(zero_shot)", *(cell(zero, [s]) for s in sets), cell(zero, sets), *[""] * 5])
    heads = ["worst stream to zero-shot", "streams below zero-shot − 1"]
    heads += [f"head_{what}" for what in ("trust", "gain", "noise")]
    return table(["answers", *sets, "mean", *heads], lines)


def write_page(out: Path, docs: Path, read_rows: Callable[[Path], Rows]) -> None:
    """docs/label.md: the words of recipes/label_page.md with the tables in them, and its figures."""
    from label_figures import draw

    from taps.methods.plus import Plus

    parts: dict[str, str] = {}
    for name in ("develop", "final"):
        rows = read_rows(out / f"{name}-1.jsonl")
        sets = list(dict.fromkeys(row["set"] for row in rows))
        parts |= {
            f"{name}_long": long_table(rows, sets),
            f"{name}_rules": rule_table(rows, sets, Plus.ask_by),
            f"{name}_noise": noise_table(rows, sets),
            f"{name}_orders": str(len({row["order"] for row in rows})),
            f"{name}_sizes": ", ".join(
                f"{s} {max(r['images'] for r in rows if r['set'] == s):,}" for s in sets
            ),
        }
        if name == "final":
            plus5, zero = chosen(rows, "zero_shot+", rate=0.05, ask_by=None), chosen(rows, "zero_shot")
            zero = for_each_order(zero, len({row["order"] for row in plus5}))
            parts |= {"long_over_zero": difference(plus5, zero, sets), "long_worst": worst(plus5, zero, sets)}
    parts |= short_parts(read_rows(next(iter(sorted(out.glob("final-[2-9]*.jsonl"))), out / "none")))
    many = read_rows(out / "noise-1.jsonl")
    parts["many_noise"] = noise_table(many, list(dict.fromkeys(row["set"] for row in many)))
    parts["many_orders"] = str(len({row["order"] for row in many}))
    parts["time"] = time_words(out / "time.json")
    text = (Path(__file__).parent / "label_page.md").read_text()
    for name, value in parts.items():
        text = text.replace("{" + name + "}", value)
    (docs / "label.md").write_text(text)
    draw(out, docs / "figures", read_rows(out / "final-1.jsonl"), chosen, by_order, half_width)


def short_parts(rows: Rows) -> dict[str, str]:
    """The comparison with `taps`: on the orders that `taps+` has finished."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    plus = chosen(rows, "taps+")
    orders = len(by_order(plus, sets=sets)) if plus else 0
    rows = [row for row in rows if row["order"] < max(orders, 1)]
    plus = chosen(rows, "taps+")
    named = {
        "zero_shot": for_each_order(chosen(rows, "zero_shot"), orders),
        "view_ensemble": for_each_order(chosen(rows, "view_ensemble"), orders),
        "taps": inside(plus),
        "zero_shot+": chosen(rows, "zero_shot+"),
        "view_ensemble+": chosen(rows, "view_ensemble+"),
        "taps+": plus,
    }
    parts = {"short": accuracy_table(named, sets), "short_orders": str(orders)}
    parts["short_images"] = str(max((row["images"] for row in rows), default=0))
    for name in ("taps", "view_ensemble", "zero_shot"):
        done = orders and all(named[n] for n in ("taps+", name))
        parts[f"over_{name}"] = difference(plus, named[name], sets) if done else "–"
        parts[f"worst_{name}"] = worst(plus, named[name], sets) if done else "–"
    return parts


def time_words(file: Path) -> str:
    if not file.exists():
        return "not measured"
    timing = json.loads(file.read_text())
    alone = ", ".join(
        f"{value:.2f} ms with {classes} classes" for classes, value in timing["head_ms"].items()
    )
    pairs = "; ".join(
        f"{pair['extra_ms']:+.2f} ms ({pair['extra_percent']:+.1f} %) on a step of `{name}`, "
        f"{pair['step_ms']:.1f} ms"
        for name, pair in timing["pairs"].items()
    )
    return (
        f"a head adds {pairs} ({timing['views']} views where there are several, one thread, CPU time, median "
        f"over steps that go by turns in one run). The head's own work takes {alone}"
    )
