"""The page of `recipes/results.py`: figures with intervals over images and orders."""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from label import CHOOSING
from provenance import hardware

from taps.files import write_text
from taps.methods.registry import find_method

Row = dict[str, Any]
Kind = tuple[str, float, str, float, str]  # method, rate, rule, noise, situation
RESAMPLES = 10_000
LEVEL = 0.05
DIGESTS = Path(__file__).resolve().parent.parent / "tests" / "assets" / "digests.json"
BASELINE = "zero_shot"

TEXT = """# Every method on features

{commit}, {date}, {hardware}. Made by `{command}`.{note}

**Scale.** The {model} model, {views} views, one template, {images} images of each of {sets} sets ({names}),
{orders}. {small}Every method has one setting for all sets: its defaults, `fraction` 0.5, and where
it asks, a budget of 5 % of the images by `paced`, the stream's length known. Class names are the only texts.
The defaults of our own heads were chosen on the sets with a star; those of other methods are their
authors'. {left_out}

**How to read it.** Figures are means over sets, in per cent. A prediction is made before its label can be
asked for. *Gain* is the difference from the baseline on the same images; its 95 % interval is over images and
orders, both drawn again {resamples:,} times; *no star* is the gain on the sets without one. *Again* is the
accuracy when the last state predicts all images again. **Bold**: different from 0 after Holm's correction
for all {tests} comparisons of this page (level {level}). Sets are not drawn
again: nothing is claimed of other sets.
ECE is the calibration error, ms the median of one thread without the encoder. Rows and intervals are in
[results.csv](results.csv) and [results.json](results.json).

## Without labels

Gains are over `{baseline}`.

{plain}

## With labels for 5 % of the images

{asking}

## By number of labels

Accuracy in the stream, and the gain over `{baseline}`.

{labels}

## By asking rule

`view_ensemble+`, 5 %; gains are over random questions.

{rules}

## Streams that are not shuffled

Gains over `{baseline}` on the same stream. *Few classes*: three of ten occur. *One class mostly*:
mixed at first, later of one class alone, four of five images in all; most of these streams are short (mixed
throughout: [rivals](rivals.md)). *Class after class*: sorted. *statA*, *longtail*: `taps eval --order` draws
the same.

{streams}

## Wrong answers

Accuracy, and gain over `{baseline}`, where a share of the answers is a class drawn at random.

{harm}

## What holds

{reading}
"""


def write_page(rows: list[Row], given: argparse.Namespace) -> None:
    """The page, and its figures as CSV and JSON."""
    found = Figures(rows)
    origin = origin_of(rows, found, given)
    given.docs.mkdir(parents=True, exist_ok=True)
    write_text(given.docs / "results.csv", as_csv(found.all))
    held = {"origin": origin, "figures": found.all}
    write_text(given.docs / "results.json", json.dumps(held, indent=1) + "\n")
    write_text(given.docs / "results.md", page(found, origin))


def origin_of(rows: list[Row], found: Figures, given: argparse.Namespace) -> dict[str, Any]:
    """Where the figures come from, and what stands for the methods' numbers (`tests/digests.py`)."""
    digests = json.loads(DIGESTS.read_text()) if DIGESTS.is_file() else {}
    methods = {row["method"] for row in rows}
    limit = max(len(row["hits"]) for row in rows)
    return {
        "commit": rows[0]["commit"],
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "hardware": hardware(),
        "command": f"recipes/results.py run --features FEATURES --out OUT --views {given.views} "
        f"--limit {limit} --orders {found.orders}",
        "model": given.model,
        "views": given.views,
        "since": given.since,
        "digests": {name: digests[name]["digest"] for name in sorted(methods & digests.keys())},
    }


class Figures:
    """All figures of the page, of streams that every kind has.

    Args:
        rows: As `recipes/results.py run` wrote them.
    """

    def __init__(self, rows: list[Row]) -> None:
        self.sets = sorted({row["set"] for row in rows})
        self.rows = {(*kind_of(row), row["set"], row["order"]): row for row in rows}
        kinds = list(dict.fromkeys(kind_of(row) for row in rows if row["order"] == 0))
        self.kinds = [kind for kind in kinds if self.complete(kind, 0)]
        self.orders = 1
        while all(self.complete(kind, self.orders) for kind in self.kinds) and self.has_order(self.orders):
            self.orders += 1
        self.all = [self.figure(kind) for kind in self.kinds]
        compared = [each for each in self.all if each["p"] is not None]
        for each, p in zip(compared, holm([each["p"] for each in compared]), strict=True):
            each["p"] = p
        self.tests = len(compared)

    def has_order(self, order: int) -> bool:
        return any(key[-1] == order for key in self.rows)

    def complete(self, kind: Kind, order: int) -> bool:
        return all(self.row(kind, name, order) is not None for name in self.sets)

    def row(self, kind: Kind, name: str, order: int) -> Row | None:
        """A stream's row; that of the first order where a method without a state sees a whole set."""
        found = self.rows.get((*kind, name, order))
        first = self.rows.get((*kind, name, 0))
        return first if found is None and first and first["stateless"] and not kind[4] else found

    def rows_of(self, kind: Kind) -> list[Row]:
        found = [self.row(kind, name, order) for name in self.sets for order in range(self.orders)]
        return [row for row in found if row is not None]

    def mean(self, kind: Kind, name: str) -> float:
        return float(np.mean([row[name] for row in self.rows_of(kind)]))

    def hits(self, kind: Kind, name: str) -> np.ndarray:
        """Of every order and image 1 or 0, or NaN where it did not come."""
        values = {"1": 1.0, "0": 0.0, "-": np.nan}
        rows = [self.row(kind, name, order) for order in range(self.orders)]
        return np.array([[values[letter] for letter in row["hits"]] for row in rows if row])

    def figure(self, kind: Kind) -> dict[str, Any]:
        """What the tables say of one kind of stream."""
        method, rate, rule, noise, situation = kind
        asks = find_method(method).asks
        base = (method, rate, "random", noise, situation) if rule else (BASELINE, 0.05, "", 0.0, situation)
        found = {"method": method, "rate": rate if asks else 0.0, "rule": rule, "noise": noise}
        found |= {"situation": situation, "asked": self.asked(kind)}
        for name in ("accuracy", "calibration_error", "log_loss", "milliseconds"):
            found[name] = self.mean(kind, name)
        again = [row["again"] for row in self.rows_of(kind) if row["again"] is not None]
        found["again"] = float(np.mean(again)) if again else None
        told = dict.fromkeys(("gain", "low", "high", "p", "untouched", "worst", "worst_set"))
        return found | (told if base == kind or base not in self.kinds else self.compared(kind, base))

    def asked(self, kind: Kind) -> float:
        return float(np.mean([100 * row["asked"] / row["images"] for row in self.rows_of(kind)]))

    def compared(self, kind: Kind, base: Kind) -> dict[str, Any]:
        """Mean gain over a base, its interval, its p, and the set where it is least."""
        pairs = {name: self.hits(kind, name) - self.hits(base, name) for name in self.sets}
        drawn = 100 * np.mean([resampled(pair) for pair in pairs.values()], axis=0)
        gains = {name: 100 * float(np.nanmean(pair)) for name, pair in pairs.items()}
        low, high = np.quantile(drawn, [0.025, 0.975])
        below, above = (drawn <= 0).mean(), (drawn >= 0).mean()
        worst = min(gains, key=lambda name: gains[name])
        untouched = [value for name, value in gains.items() if name not in CHOOSING]
        return {
            "gain": float(np.mean(list(gains.values()))),
            "low": float(low),
            "high": float(high),
            "p": float(min(1.0, 2 * max(min(below, above), 1 / RESAMPLES))),
            "untouched": float(np.mean(untouched)) if untouched else None,
            "worst": gains[worst],
            "worst_set": worst,
        }

    def find(self, **wanted: Any) -> list[dict[str, Any]]:
        usual = {"rule": "", "noise": 0.0, "situation": ""} | wanted
        return [each for each in self.all if all(each[name] == value for name, value in usual.items())]


def kind_of(row: Row) -> Kind:
    return row["method"], row["rate"], row["rule"], row["noise"], row["situation"]


@cache
def weights(orders: int, images: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each order and each image is drawn, of all resamples."""
    rng = np.random.default_rng([orders, images])
    drawn = [rng.multinomial(n, np.full(n, 1 / n), RESAMPLES).astype(np.float32) for n in (orders, images)]
    return drawn[0], drawn[1]


def resampled(differences: np.ndarray) -> np.ndarray:
    """The mean of differences [orders, images] with orders and images drawn again; NaN did not come."""
    by_order, by_image = weights(*differences.shape)
    there = np.isfinite(differences).astype(np.float32)
    sums = ((by_order @ np.nan_to_num(differences).astype(np.float32)) * by_image).sum(1)
    return np.asarray(sums / np.maximum(((by_order @ there) * by_image).sum(1), 1))


def holm(ps: Sequence[float]) -> list[float]:
    """P-values of many tests, corrected by Holm's step-down procedure."""
    corrected, largest = [0.0] * len(ps), 0.0
    for place, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[index]))
        corrected[index] = largest
    return corrected


def gain(each: dict[str, Any]) -> str:
    """A gain and its interval; bold where it is beyond chance."""
    if each["gain"] is None:
        return "–"
    mark = "**" if each["p"] < LEVEL else ""
    return f"{mark}{each['gain']:+.1f}{mark} ({each['low']:+.1f} … {each['high']:+.1f})"


def number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def table(heads: list[str], lines: list[list[str]]) -> str:
    rows = [heads, ["---"] + ["---:"] * (len(heads) - 1), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def methods_table(found: list[dict[str, Any]], asking: bool) -> str:
    """Methods from the most accurate on."""
    found = sorted(found, key=lambda each: -each["accuracy"])
    heads = [
        "method",
        "accuracy",
        *(["again"] if asking else []),
        "gain",
        "no star",
        "worst set",
        "ECE",
        "ms",
    ]
    return table(
        heads,
        [
            [
                f"`{each['method']}`" + (f" ({each['asked']:.1f} % asked)" if asking else ""),
                f"{each['accuracy']:.1f}",
                *([number(each["again"], ".1f")] if asking else []),
                gain(each),
                number(each["untouched"], "+.1f"),
                "–" if each["worst"] is None else f"{each['worst']:+.1f} {each['worst_set']}",
                f"{each['calibration_error']:.1f}",
                f"{each['milliseconds']:.2g}",
            ]
            for each in found
        ],
    )


def crossed(found: list[dict[str, Any]], column: str, say: Callable[[Any], str]) -> str:
    """Methods by the values of a column: accuracy and gain."""
    values = list(dict.fromkeys(each[column] for each in sorted(found, key=lambda each: each[column])))
    cells = {(each["method"], each[column]): f"{each['accuracy']:.1f}, {gain(each)}" for each in found}
    methods = dict.fromkeys(each["method"] for each in found)
    return table(
        ["method", *map(say, values)],
        [[f"`{method}`", *(cells.get((method, value), "") for value in values)] for method in methods],
    )


def page(found: Figures, origin: dict[str, Any]) -> str:
    asks = {each["method"]: find_method(each["method"]).asks for each in found.all}
    usual = [each for each in found.find() if each["rate"] in (0.0, 0.05)]
    heads = [each["method"] for each in found.find(rate=0.01)]
    noisy = [each for each in found.all if each["method"] in heads and each["rate"] == 0.05]
    harm = [each for each in noisy if not each["rule"] and not each["situation"]]
    images = sorted({len(row["hits"]) for row in found.rows.values()})
    many = f"{found.orders} orders" if found.orders > 1 else "one order"
    return TEXT.format(
        **origin | {"commit": f"Commit {origin['commit']}"},
        images=images[0] if len(images) == 1 else f"{images[0]} to {images[-1]}",
        sets=len(found.sets),
        note=f" {origin['since']}" if origin["since"] else "",
        names=", ".join(f"{name}*" if name in CHOOSING else name for name in found.sets),
        orders=many,
        small="This is a small scale: differences of a few points are within chance. "
        if images[0] < 1000
        else "",
        left_out="Methods that run the text tower for each image are left out." if "ctpt" not in asks else "",
        resamples=RESAMPLES,
        tests=found.tests,
        level=LEVEL,
        baseline=BASELINE,
        plain=methods_table([each for each in usual if not asks[each["method"]]], asking=False),
        asking=methods_table([each for each in usual if asks[each["method"]]], asking=True),
        labels=crossed(
            [each for each in found.find() if each["method"] in heads], "rate", lambda rate: f"{rate:.0%}"
        ),
        rules=rules_table(found),
        streams=crossed(
            [each for each in found.all if each["situation"]], "situation", lambda situation: situation
        ),
        harm=crossed(harm, "noise", lambda noise: f"{noise:.0%} wrong"),
        reading=reading(found, usual, asks),
    )


def rules_table(found: Figures) -> str:
    rules = sorted((each for each in found.all if each["rule"]), key=lambda each: -each["accuracy"])
    lines = [
        [f"`{each['rule']}`", f"{each['accuracy']:.1f}", f"{each['again']:.1f}", gain(each)] for each in rules
    ]
    return table(["rule", "accuracy", "again", "gain"], lines)


def reading(found: Figures, usual: list[dict[str, Any]], asks: dict[str, bool]) -> str:
    """What can be said, from the figures alone."""
    lines = []
    for title, wanted in (("Without labels", False), ("With labels for 5 %", True)):
        some = [each for each in usual if asks[each["method"]] is wanted and each["p"] is not None]
        sure = [each for each in some if each["p"] < LEVEL]
        up = [f"`{each['method']}`" for each in sure if each["gain"] > 0]
        down = [f"`{each['method']}`" for each in sure if each["gain"] < 0]
        lines.append(
            f"- {title}: {len(up)} of {len(some)} methods are above `{BASELINE}` beyond chance"
            + (f" ({', '.join(up)})" if up else "")
            + f", {len(down)} below"
            + (f" ({', '.join(down)})" if down else "")
            + f"; of {len(some) - len(sure)} nothing can be said at this scale."
        )
        hurt = [f"`{each['method']}`" for each in some if each["worst"] < -2]
        lines.append(f"- {title}: {len(hurt)} of {len(some)} lose more than 2 points on some set.")
    rules = [each for each in found.all if each["rule"] and each["p"] is not None and each["p"] < LEVEL]
    told = ", ".join(f"`{each['rule']}` {each['gain']:+.1f}" for each in rules) or "none"
    lines.append(f"- Asking rules that differ from random questions beyond chance: {told}.")
    wrong = [each for each in found.all if each["noise"] == 0.4]
    told = ", ".join(f"`{each['method']}` {gain(each)}" for each in wrong)
    lines.append(f"- With 40 % wrong answers: {told}.")
    return "\n".join(lines)


def as_csv(figures: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    out = csv.DictWriter(text, list(figures[0]), lineterminator="\n")
    out.writeheader()
    for each in figures:
        out.writerow({name: f"{v:.5g}" if isinstance(v, float) else v for name, v in each.items()})
    return text.getvalue()
