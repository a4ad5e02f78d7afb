"""The page of `recipes/rivals.py`: docs/results/rivals.md, its figures, the picture of the budget curve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from results_page import table
from rivals_measures import OURS, Row, figures

from taps.study.report.svg import BLUE, GREY, ORANGE, RED, Line, chart, span, standalone

SHOWN = {  # curves of the picture: by questions, and by seconds
    ("view_ensemble+", "margin"): ("ours", BLUE, False),
    ("view_ensemble+", "random"): ("ours, random", BLUE, True),
    ("prolip", "margin"): ("prolip", ORANGE, False),
    ("class_means", "margin"): ("class means", GREY, False),
    ("view_ensemble+", "class"): ("ours, which class", BLUE, False),
    ("view_ensemble+", "yes_no"): ("ours, yes or no", RED, False),
    ("bitta", "class"): ("bitta, which class", GREY, False),
    ("bitta", "yes_no"): ("bitta, yes or no", GREY, True),
}
ASKED = {
    "class": "which class",
    "yes_no": "yes or no",
    "both": "whichever tells more a second",
}

TEXT = """# Other heads, the same labels

Every method is sent through the same streams: {streams} streams of {images} images at most ({sets}; orders
of each: {orders}), the {model} model. A prediction is made before its label is known. 5 % of the images may
be asked about, unless said. That is a budget of time: a yes or no takes 1.6 s, a class of fifty 11.7 s, so
that more of the former can be asked. No question is put at random but under `random`. `view_ensemble+` sees
{views} views of an image; the others read the mean feature of the same views, which helps them ([one
view](#by-random-questions-one-view) is below). One setting for all sets. Authors who search on a validation
set do better than here ([differences](methods.md) says who does). What is not even: the defaults of our own
head were chosen on {chosen}. Of `bitta` five learning rates and of `proker` twelve pairs of kernel
and penalty were tried on these ([tried.json](tried.json)), of `eatta` four learning rates on two or three of
`dtd`, `sketch` and `gtsrb`, and of `clap` four lengths of its weights on eight sets; the best was kept. No
other method was tuned. Combinations whose streams were not all run are left out.

| | |
|---|---|
| commit | {commit} |
| date | {date} |
| hardware | {hardware} |
| command | `{command}` |

## What it shows

{reading}

Where labels are as few as classes, some heads fall far below zero-shot. They were published for another
case: the same number of labels for every class, all there before the first step. Here labels come one at a
time, most classes have none for long, and the number of steps for each label is ours, untuned. These falls
are of our online forms. The column *enough labels* has the sets with three labels or more for each class by
the end ({enough}).

## By random questions

All methods get labels of the same images, but for `bitta`, which is told yes or no. Accuracy in the stream,
over its first 60 images and its last quarter, and of all images when they are predicted again at the end
(images with an answer included); means over the streams, in per cent. *From ours*: mean difference from
`view_ensemble+`, and its standard error over streams.

{random}

## By random questions, one view

The same on view 0 alone. *From ours*: from `zero_shot+`, our head on that view.

{one_view}

## By margin, and by their own rule

The same with questions by `margin`, or by the rule a method was published with. *Gain*: in stream accuracy
over random questions, paired by stream. *Had wrong*: share of the questions whose image was predicted
wrong.

{rules}

## Set by set

Accuracy in the stream, in per cent. The best of a row is bold.

{set_tables}
{budgets}{seconds}{cases}"""


def write_page(rows: list[Row], origin: dict[str, Any], folder: Path) -> None:
    """The page, the same figures as JSON, and the picture where there are budgets to draw."""
    found, results = figures(rows), folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    (results / "rivals.json").write_text(json.dumps({"origin": origin, **found}, indent=1) + "\n")
    (results / "rivals.md").write_text(page(rows, origin, found))
    if found["curves"]:
        (folder / "figures").mkdir(exist_ok=True)
        (folder / "figures" / "label-rivals.svg").write_text(picture(found))


def picture(found: dict[str, Any]) -> str:
    """Accuracy by questions, and by the annotator's seconds."""
    panels = [
        panel(found["curves"], "rule", "asked", "questions in a stream"),
        panel(found["seconds"], "questions", "annotator_seconds", "annotator's seconds in a stream"),
    ]
    return standalone([each for each in panels if each], columns=2)


def panel(curves: list[dict[str, Any]], kind: str, x: str, title: str) -> str:
    """The curves that are shown; nothing where there are none."""
    drawn = {key: each for each in curves if (key := (each["method"], each[kind])) in SHOWN}
    if not drawn:
        return ""
    y = span([height for each in drawn.values() for height in each["accuracy"]])
    lines = [line(SHOWN[key], each[x], each["accuracy"]) for key, each in drawn.items()]
    return chart(lines, x_title=title, y_title="accuracy, %", y=y, log_x=True)


def line(style: tuple[str, str, bool], x: list[float], y: list[float]) -> Line:
    """One curve; where nothing was asked it has no point."""
    points = [(at, height) for at, height in zip(x, y, strict=True) if at]
    return Line(style[0], [at for at, _ in points], [height for _, height in points], *style[1:])


def page(rows: list[Row], origin: dict[str, Any], found: dict[str, Any]) -> str:
    one = {name: k for name, k in found["kinds"].items() if k["views"] == 1}
    kinds = {name: k for name, k in found["kinds"].items() if k["views"] == origin["views"]}
    first = next(iter(kinds.values()))
    names = sorted(first["by_set"])
    return TEXT.format(
        **origin,
        streams=first["streams"],
        images=max(row["images"] for row in rows),
        sets=listed(names),
        chosen=listed([name for name in names if name in origin["development_sets"]]),
        enough=listed(found["enough"]),
        orders=f"{first['streams'] / len(names):g}",
        random=random_table(kinds),
        one_view=random_table(one),
        rules=rule_table(found["kinds"]),
        set_tables="\n\n".join(f"By `{r}`:\n\n{set_table(kinds, names, r)}" for r in rules_of(kinds)),
        budgets=budget_table(found["curves"]) + per_class_table(found["per_class"]),
        seconds=seconds_table(found["seconds"]),
        cases=case_table(found["cases"]),
        reading=reading(kinds, origin["development_sets"]),
    )


def budgets(curves: list[dict[str, Any]]) -> str:
    rates = curves[0]["rates"]
    return f"{100 * rates[0]:g} to {100 * rates[-1]:g} %"


def rules_of(kinds: dict[str, Any]) -> list[str]:
    """The rules that several heads were run with."""
    found = [k["rule"] for k in kinds.values() if k["rule"]]
    return [rule for rule in dict.fromkeys(found) if found.count(rule) > 1]


def listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def difference(value: list[float] | None) -> str:
    return "–" if value is None else f"{value[0]:+.1f} ± {value[1]:.1f}"


def ranked(kinds: dict[str, Any], *rules: str) -> list[dict[str, Any]]:
    return sorted((k for k in kinds.values() if k["rule"] in rules), key=lambda k: -k["accuracy"])


def random_table(kinds: dict[str, Any]) -> str:
    head = ["method", "in the stream", "from ours", "enough labels", "first 60", "last quarter", "at the end"]
    head += ["ms an image"]
    rows = [
        [
            f"`{k['method']}`",
            number(k["accuracy"]),
            difference(k["from_ours"]) if k["method"] not in OURS else "–",
            number(k["enough"]),
            number(k["first"]),
            number(k["last_quarter"]),
            number(k["again"]),
            number(k["milliseconds"]),
        ]
        for k in ranked(kinds, "random", "")
    ]
    return table(head, rows)


def rule_table(kinds: dict[str, Any]) -> str:
    head = ["method", "rule", "in the stream", "gain", "first 60", "last quarter", "at the end", "had wrong"]
    head += ["questions", "seconds"]
    rows = [
        [
            f"`{k['method']}`",
            f"`{k['rule']}`",
            number(k["accuracy"]),
            difference(k["over_random"]),
            number(k["first"]),
            number(k["last_quarter"]),
            number(k["again"]),
            number(k["asked_wrong"], 0),
            number(k["asked"], 0),
            number(k["annotator_seconds"], 0),
        ]
        for k in ranked(kinds, *sorted({k["rule"] for k in kinds.values()} - {"random", ""}))
    ]
    return table(head, rows)


def set_table(kinds: dict[str, Any], names: list[str], rule: str) -> str:
    """A row for each set; of each the best is bold."""
    shown = [*ranked(kinds, ""), *ranked(kinds, rule)]
    rows = []
    for name in names:
        values = [k["by_set"][name] for k in shown]
        cells = [f"**{v:.1f}**" if v == max(values) else f"{v:.1f}" for v in values]
        rows.append([f"`{name}`", *cells])
    return table(["set", *(f"`{k['method']}`" for k in shown)], rows)


def budget_table(found: list[dict[str, Any]]) -> str:
    if not found:
        return ""
    head = ["method", "rule", *(f"{100 * r:g} %" for r in found[0]["rates"]), "area", "over random"]
    rows = [
        [
            f"`{each['method']}`",
            f"`{each['rule']}`",
            *(number(a) for a in [*each["accuracy"], each["area"]]),
            difference(each["over_random"]) if each["rule"] != "random" else "–",
        ]
        for each in sorted(found, key=lambda each: -each["area"])
    ]
    words = f"""
## By budget

Accuracy in the stream by the share of images that may be asked about ({found[0]["streams"]} streams). *Area*:
mean height of that curve over the logarithm of the number of questions. *Over random*: the area less that of
random questions, paired by stream.

"""
    return words + table(head, rows) + "\n"


def per_class_table(found: dict[str, Any]) -> str:
    """By answers a class, where some set reaches them."""
    if not any(found["sets"]):
        return ""
    head = [f"{n} ({sets} sets)" for n, sets in zip(found["answers"], found["sets"], strict=True)]
    rows = [
        [
            f"`{row['method']}`",
            f"`{row['rule']}`",
            *(number(a) for a in [*row["accuracy"], row["area"]]),
            difference(row["over_random"]) if row["rule"] != "random" else "–",
        ]
        for row in sorted(found["rows"], key=lambda row: -(row["area"] or 0))
    ]
    words = """
Accuracy in the stream by answers a class, in the mean over classes. Each column is of the sets whose budgets
reach from below that number to above it; between two budgets the curve is straight over the logarithm.
*Area*: its mean height over the logarithm between 1 and 16, of the sets whose budgets cover half of that.

"""
    return words + table(["method", "rule", *head, "area", "over random"], rows) + "\n"


def seconds_table(found: list[dict[str, Any]]) -> str:
    """A row for each method and kind of question."""
    if not found:
        return ""
    head = ["method", "question", *(f"{100 * r:g} %" for r in found[0]["rates"]), "area", "over the class"]
    rows = [
        [
            f"`{each['method']}`",
            ASKED[each["questions"]],
            *(seconds_cell(each, place) for place in range(len(each["rates"]))),
            number(each["area"]),
            difference(each["over_class"]) if each["questions"] != "class" else "–",
        ]
        for each in sorted(found, key=lambda each: -each["area"])
    ]
    words = f"""
## By the annotator's seconds: yes or no, or which class

Questions by `margin` ({found[0]["streams"]} streams). A yes or no about the likeliest class takes 1.6 s;
which class it is takes more the more classes there are, 11.7 s of fifty. Every kind gets the same seconds: as
many as it takes to ask for the class of {budgets(found)} of the images. Accuracy in the stream; in brackets
the questions that were put and the seconds they took. *Area*: mean height over the logarithm of the seconds,
where all kinds have some. *Over the class*: the area less that of asking for the class, paired by stream.
`bitta` was published for yes or no.

"""
    return words + table(head, rows) + "\n"


def seconds_cell(each: dict[str, Any], place: int) -> str:
    accuracy, asked, took = (each[name][place] for name in ("accuracy", "asked", "annotator_seconds"))
    return f"{accuracy:.1f} ({asked:.0f}, {took:.0f} s)"


CASES = {
    "20 % wrong": "a fifth of the answers is a class drawn at random",
    "40 % wrong": "two fifths are",
    "two classes confused": "of an image of the two largest classes the annotator names either",
    "one class mostly": "four of five images are of a set's largest class; these streams are shorter, and of "
    "the {} sets that have 50 images for it",
}


def case_table(found: dict[str, Any]) -> str:
    """A row for each method, a column for each case; the least gain over zero-shot of any set behind it."""
    found = {case: found[case] for case in ("right answers", *CASES) if len(found.get(case, {})) > 1}
    if not found:
        return ""
    methods = [method for method in found["right answers"] if all(method in each for each in found.values())]
    best = [max(each[method]["accuracy"] for method in methods) for each in found.values()]
    rows = [
        [f"`{m}`", *(case_cell(each[m], m, top) for each, top in zip(found.values(), best, strict=True))]
        for m in methods
    ]
    rows.append(
        ["always the largest class", *(number(each["zero_shot"]["largest"]) for each in found.values())]
    )
    what = ". ".join(
        f"*{case}*: {words.format(found[case]['zero_shot']['sets'])}"
        for case, words in CASES.items()
        if case in found
    )
    words = f"""
## When answers are wrong, and when a stream is of one class

Questions by `margin`, at 5 %. {what}.
In brackets: the gain over zero-shot on the set where it is least. The best method of a case is bold.

"""
    return words + table(["method", *found], rows) + "\n"


def case_cell(figures: dict[str, Any], method: str, best: float) -> str:
    name, gain = figures["least"]
    least = "" if method == "zero_shot" else f" ({gain:+.1f} `{name}`)"
    bold = "**" if figures["accuracy"] == best else ""
    return bold + number(figures["accuracy"]) + bold + least


def reading(kinds: dict[str, Any], chosen: list[str]) -> str:
    """How far ours is ahead of the best other head, and where another one beats it."""
    lines = []
    for rule in rules_of(kinds):
        ours = next((k for k in ranked(kinds, rule) if k["method"] == OURS[0]), None)
        others = [k for k in ranked(kinds, rule) if k["method"] not in OURS]
        if ours and others:
            lines += [ahead(ours, others, rule, chosen), beaten(ours, others)]
    return "\n".join(lines)


def ahead(ours: dict[str, Any], others: list[dict[str, Any]], rule: str, chosen: list[str]) -> str:
    """Ours beside the best other head, over all sets and over those on which no default was chosen."""
    rest = [name for name in ours["by_set"] if name not in chosen]
    words = [f"over all sets {best_of(ours, others, list(ours['by_set']))}"]
    if rest:
        words.append(
            f"over the {len(rest)} on which no default of ours was chosen {best_of(ours, others, rest)}"
        )
    return f"- By `{rule}`: {'; '.join(words)}."


def best_of(ours: dict[str, Any], others: list[dict[str, Any]], names: list[str]) -> str:
    def mean(kind: dict[str, Any]) -> float:
        return sum(kind["by_set"][name] for name in names) / len(names)

    best = max(others, key=mean)
    return f"`{OURS[0]}` has {mean(ours):.1f}, the best other head, `{best['method']}`, {mean(best):.1f}"


def beaten(ours: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Sets where another head is better, by its mean over the orders: in the whole stream, and late in it."""
    whole, late = better(ours, others, "by_set"), better(ours, others, "late_by_set")
    if not whole:
        return "  No other head is better on any set."
    return f"  Better in the whole stream: {whole}. In its last quarter: {late or 'none'}."


def better(ours: dict[str, Any], others: list[dict[str, Any]], measure: str) -> str:
    """Of each set that another head wins: the best one, and by how much."""
    won = []
    for name, height in ours[measure].items():
        best = max(others, key=lambda k: k[measure][name])
        if best[measure][name] > height:
            won.append(f"`{best['method']}` on `{name}` ({best[measure][name] - height:+.1f})")
    return ", ".join(won)
