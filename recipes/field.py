"""Every method on every set at hand: one setting for all, several orders, within a time limit; and its page.

    python recipes/field.py reduce --data DIR --to SMALLER --images 350
    PYTHONPATH=src python3 recipes/field.py run --data SMALLER --out OUT --jobs 14 --device cuda \\
        --first 66 --most 66
    python recipes/field.py page --rows docs/results/field.json --page docs/results/field.md \\
        --reading recipes/field_reading.md --made "commit 7f343ee (2026-11-16), one H200: version 0.2, …"

`reduce` draws as many images of each set, each class once at least, so that a copy travels easily. `run`
gives every run a few images first; from the time that took it works out how many fit into the rest, and goes
on with them, data set by data set: methods on a set are compared on the images that all of them have. It goes
on where it was stopped. It leaves OUT/field.json: one cell a method and data set. `page` makes the page of
results from that. `run` needs neither typer nor rich.
"""

from __future__ import annotations

import argparse
import json
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from provenance import made_by
from run_all_pocket import pack
from table_tools import main, possible, printed

from taps.data import load_dataset, stream_order
from taps.evaluate.evaluate import evaluate, read_spec, run_folders
from taps.evaluate.jobs import Job, ModelSpec, StreamSpec
from taps.evaluate.measures import MEASURES
from taps.evaluate.options import Execution
from taps.evaluate.plan import make_jobs, open_streams
from taps.evaluate.pooled import BASELINE, pool
from taps.evaluate.results import Results, read_results
from taps.files import write_json
from taps.methods.registry import all_methods, find_method
from taps.report.published import published_accuracy
from taps.report.table import Table, markdown

SETS = (
    *("caltech101-test.zip", "imagenette-val.zip", "tiny-imagenet-val.zip", "flowers102-test.zip"),
    *("food101-test.zip", "cub200-test.zip", "pacs.zip/photo", "pacs.zip/art_painting", "pacs.zip/cartoon"),
    *("pacs.zip/sketch", "dtd.zip", "gtsrb-test.zip", "grocery-test.zip", "plantdoc.zip", "rsscn7.zip"),
    *("sign-digits.zip",),
)
NAMED = {"caltech101-test": "caltech101", "flowers102-test": "oxford_flowers", "food101-test": "food101"}
"""Sets of which other people's numbers are known; ours are part of their test images."""
SHORTER = {"-test": "", "-val": "", "art_painting": "art", "tiny-imagenet": "tiny-imgnet"}
SLOW = (
    *("dynaprompt", "rlcf", "simatta", "sar", "ttl", "memo", "tent", "pcb", "taps+", "taps", "ctpt", "otpt"),
    *("rtpt", "cocoop+tpt", "promptalign", "maple+tpt", "coop+tpt", "tpt", "tpt_skip"),
)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("reduce", "run", "page"))
    parser.add_argument("--data", type=Path, help="folder that holds the zips")
    parser.add_argument("--to", type=Path, help="reduce: folder for the smaller copies")
    parser.add_argument("--images", type=int, default=350, help="reduce: images of each set")
    parser.add_argument("--out", type=Path, help="run: folder of the evaluation")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--methods", default="", help="all unless given")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--first", type=int, default=40, help="images of every run in the first round")
    parser.add_argument("--most", type=int, default=1000, help="images of a run at most")
    parser.add_argument("--time-limit", type=float, default=480.0, help="seconds for the runs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device")
    parser.add_argument("--views", type=int, help="64 unless given")
    parser.add_argument("--fraction", type=float, help="share of the views that is kept; 0.1 unless given")
    parser.add_argument("--archive", type=Path, help="run: pack all predictions into this .tar.gz")
    parser.add_argument("--rows", type=Path, help="page: field.json")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--reading", type=Path, help="page: what is to be said of it, a Markdown file")
    parser.add_argument("--made", help="page: commit, day and hardware of the rows; today's unless given")
    args = parser.parse_args()
    args.pretrained = args.prompts = args.source = None
    return args


def reduce(args: argparse.Namespace) -> None:
    """Copies of the zips with fewer images: the first of a seeded order, and one of every class."""
    args.to.mkdir(parents=True, exist_ok=True)
    kept: dict[Path, set[str]] = {}
    for name in args.sets.split(","):
        place = args.data / name
        archive = next((part for part in (place, *place.parents) if part.suffix == ".zip"), None)
        if archive is None:
            raise SystemExit(
                f"{name} is in no zip; name the file, such as {name}.zip, or a folder inside one."
            )
        inner = place.relative_to(archive).as_posix()
        dataset = load_dataset(place)
        order = stream_order(len(dataset), seed=0).tolist()
        first = {dataset.samples[i].label: i for i in reversed(order)}
        chosen = list(dict.fromkeys([*first.values(), *order]))[: max(args.images, len(first))]
        prefix = "" if inner == "." else f"{inner}/"
        kept.setdefault(archive, set()).update(prefix + dataset.samples[i].key for i in chosen)
    for archive, names in kept.items():
        with zipfile.ZipFile(archive) as old, zipfile.ZipFile(args.to / archive.name, "w") as new:
            for member in sorted(names & set(old.namelist())):
                new.writestr(member, old.read(member))
        size = (args.to / archive.name).stat().st_size / 1e6
        print(f"{args.to / archive.name}: {len(names):,} images, {size:.1f} MB")


def plan(args: argparse.Namespace) -> tuple[list[Job], dict[str, int]]:
    """All runs, and the images of each stream."""
    model = ModelSpec(args.model)
    opened = open_streams([StreamSpec(str(args.data / name)) for name in args.sets.split(",")])
    wanted = args.methods.split(",") if args.methods else list(all_methods())
    methods = possible(list(dict.fromkeys([BASELINE, *wanted])), model, args)
    seeds = [int(seed) for seed in args.seeds.split(",")]
    values = {"views": args.views, "fraction": args.fraction}
    jobs = make_jobs([stream for stream, _ in opened], model, methods, seeds, values)
    return jobs, {stream.name: len(dataset) for stream, dataset in opened}


def run(args: argparse.Namespace) -> None:
    deadline = time.time() + args.time_limit
    jobs, lengths = plan(args)
    names = list(lengths)
    begun = {folder: read_spec(folder)["limit"] or 0 for folder in run_folders(args.out)}
    most, limit, missing = min(args.most, max(lengths.values())), args.first, []
    while True:
        began = time.time()
        share = [
            replace(job, limit=min(max(limit, begun.get(job.folder(args.out), 0)), lengths[job.stream.name]))
            for job in jobs
        ]
        # Slow methods first: one begun last would keep one process busy while the others wait.
        slow = {method: place for place, method in enumerate(SLOW)}
        share.sort(
            key=lambda job: (
                names.index(job.stream.name) if limit > args.first else 0,
                slow.get(job.method, len(SLOW)),
            )
        )
        print(f"== {limit} images of each stream, {len(share)} runs", flush=True)
        how = Execution(args.jobs, args.device, minutes=max(0.0, deadline - began) / 60, resume=True)
        missing = evaluate(share, args.out, how, lengths=lengths, watcher=printed).unfinished
        print(
            f"== {len(missing)} of {len(share)} runs unfinished, {deadline - time.time():.0f} s left",
            flush=True,
        )
        spent, left = time.time() - began, deadline - time.time()
        further = min(most, int(limit + 0.85 * limit * left / max(spent, 1.0)))
        if limit >= most or left < 10 or further < min(most, limit + 5):
            break
        limit = further
    write_json(args.out / "field.json", cells(read_results(args.out), missing))
    if args.archive is not None:
        pack(args.out, args.archive)


def cells(results: Results, missing: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the page is made from: of each method on each data set the pooled measures, and the comparison."""
    rows = [result.row for found in results.results.values() for result in found]
    kept = [asdict(cell) for cell in pool(rows) if cell.dataset in results.datasets]
    for cell in kept:
        cell["measures"] = {name: float(f"{value:.5g}") for name, value in cell["measures"].items()}
        runs = results.of(cell["dataset"], cell["method"])
        cell["top1"] = [run.top1 for run in runs]
        if cell["method"] != BASELINE:
            cell["paired"] = asdict(results.paired(cell["dataset"], cell["method"], BASELINE))  # type: ignore[arg-type]
    first = {name: results.of(name, BASELINE)[0] for name in results.datasets}
    failed = sorted({(run["method"], run["why"]) for run in missing if "time was up" not in run["why"]})
    return {
        "model": results.model["name"],
        "images": {name: len(found.run) for name, found in first.items()},
        "failed": [f"{method}: {why}" for method, why in failed],
        "cells": kept,
    }


def page(args: argparse.Namespace) -> None:
    """The page of results from the cells."""
    field = json.loads(args.rows.read_text())
    found = {(cell["dataset"], cell["method"]): cell for cell in field["cells"]}
    datasets = list(field["images"])
    methods = [m for m in all_methods() if all((d, m) in found for d in datasets)]
    images = sorted(set(field["images"].values()))
    reading = args.reading.read_text().strip() + "\n" if args.reading else ""
    asking = [m for m in methods if find_method(m).asks]
    parts = [
        INTRO.format(
            model=field["model"],
            methods=len(methods),
            sets=len(datasets),
            orders=len(found[datasets[0], BASELINE]["top1"]),
            images=f"{images[0]}" if len(images) == 1 else f"{images[0]} to {images[-1]}",
            made=made_by("recipes/field.py", args.made),
        ),
        reading,
        "## Who wins where\n",
        "\n".join(f"- {sentence}" for sentence in facts(found, datasets, methods, asking)) + "\n",
        winners(found, datasets, [m for m in methods if m not in asking], "No labels"),
        winners(found, datasets, asking, "With labels"),
        "## Top-1\n",
        markdown(accuracies(found, datasets, methods, asking)),
        "## Beside accuracy\n",
        markdown(beside(found, datasets, methods)),
        "## Published\n",
        markdown(printed_beside(found, methods)),
    ]
    args.page.write_text("\n".join(part for part in parts if part), encoding="utf-8")
    print(args.page)


INTRO = """# Every method on every set, at pocket scale

{made}
{methods} methods on {sets} data sets, {orders} orders each, {images} images a run, with the {model}
model that comes with the package. Every method has its default settings on every set: nothing was tuned on
any of them; 64 views. The model is small and knows little of some sets (signs, groceries, leaves): the tables
show how methods compare under one protocol, not what they reach with a large CLIP. [Methods](../methods.md)
describes each, [Measure and compare](../measuring.md) the measures; cells are in [field.json](field.json).
The paper's own tables at this scale are on [another page](pocket-tables.md).
"""


def verdict(cell: Mapping[str, Any]) -> int:
    """1 or −1 where the difference to zero-shot is beyond chance: its interval over images has no 0 in it."""
    paired = cell["paired"]
    if paired["low"] <= 0 <= paired["high"]:
        return 0
    return 1 if paired["difference"] > 0 else -1


def mean_of(found: Mapping[Any, Any], datasets: Iterable[str], method: str, name: str) -> float:
    return float(np.mean([found[d, method]["measures"][name] for d in datasets]))


def facts(found: Mapping[Any, Any], datasets: list[str], methods: list[str], asking: list[str]) -> list[str]:
    """What can be read off the numbers by rule."""
    top = {m: mean_of(found, datasets, m, "top1") for m in methods}
    free = sorted((m for m in methods if m not in asking), key=lambda m: -top[m])
    signs = {m: [verdict(found[d, m]) for d in datasets] for m in methods if m != BASELINE}
    above = [m for m in free if top[m] > top[BASELINE]]
    never = [m for m in free if m in signs and not any(signs[m])]
    harm = [m for m in free if m in signs and signs[m].count(-1) > signs[m].count(1)]
    help = [m for m in free if m in signs and signs[m].count(1) > len(datasets) / 2]
    told = ", ".join(f"{m} {100 * top[m]:.1f}" for m in free[:5])
    highest = {d: max(found[d, m]["measures"]["top1"] for m in free) for d in datasets}
    best = [m for m in free if any(found[d, m]["measures"]["top1"] == highest[d] for d in datasets)]
    ece = sorted(free, key=lambda m: mean_of(found, datasets, m, "ece"))
    sentences = [
        f"Without labels the highest means are {told} (zero_shot {100 * top[BASELINE]:.1f}); {len(above)} of "
        f"{len(free) - 1} methods are above zero_shot, {len(best)} are best on some set, alone or "
        "with others.",
        f"Better than zero_shot beyond chance on more than half of the sets: {', '.join(help) or 'none'}. "
        f"Worse on more sets than better: {', '.join(harm) or 'none'}. On no set beyond chance: "
        f"{', '.join(never) or 'none'}.",
        f"Calibration: lowest ECE {', '.join(ece[:3])}; highest {', '.join(ece[-3:])}.",
    ]
    for m in sorted(asking, key=lambda m: -top[m])[:1]:
        rate = 100 * mean_of(found, datasets, m, "rate")
        sentences.append(
            f"With labels for {rate:.0f} % of the images, {m} has the highest mean, {100 * top[m]:.1f}; "
            f"better than zero_shot beyond chance on {signs[m].count(1)} of {len(datasets)} sets."
        )
    return sentences


def winners(found: Mapping[Any, Any], datasets: list[str], methods: list[str], title: str) -> str:
    """How often each is best, and better or worse than zero-shot beyond chance; by mean accuracy."""
    if not methods:
        return ""
    top = {m: np.array([found[d, m]["measures"]["top1"] for d in datasets]) for m in methods}
    best = np.max(list(top.values()), axis=0)
    ranks = {
        m: np.mean([sum(top[o][i] > top[m][i] for o in methods) + 1 for i in range(len(datasets))])
        for m in methods
    }
    rows = []
    for m in sorted(methods, key=lambda m: -top[m].mean()):
        signs = [verdict(found[d, m]) for d in datasets] if m != BASELINE else []
        gain = (
            ""
            if m == BASELINE
            else f"{100 * (top[m].mean() - mean_of(found, datasets, BASELINE, 'top1')):+.2f}"
        )
        counts = [str(signs.count(1)), str(signs.count(-1))] if signs else ["", ""]
        rows.append(
            (
                m,
                f"{100 * top[m].mean():.2f}",
                gain,
                *counts,
                str(int((top[m] == best).sum())),
                f"{ranks[m]:.1f}",
            )
        )
    columns = ("method", "mean top-1 %", "to zero_shot", "better on", "worse on", "best on", "mean rank")
    notes = (
        "Better, worse on: sets where the difference to zero_shot is beyond chance: its 95 % bootstrap "
        f"interval over images has no 0 in it. Of {len(datasets)} sets, {0.025 * len(datasets):.1f} each "
        "would be so where nothing differs. "
        "Best on, mean rank: among these methods.",
    )
    return markdown(Table(f"{title}: mean over the sets", columns, tuple(rows), notes))


def accuracies(found: Mapping[Any, Any], datasets: list[str], methods: list[str], asking: list[str]) -> Table:
    free = [m for m in methods if m not in asking]
    best = {d: max(found[d, m]["measures"]["top1"] for m in free) for d in datasets}
    rows = []
    for m in [*free, *asking]:
        values = [found[d, m]["measures"]["top1"] for d in datasets]
        told = [
            f"**{100 * v:.1f}**" if m in free and v == best[d] else f"{100 * v:.1f}"
            for d, v in zip(datasets, values, strict=True)
        ]
        rows.append(
            (f"{m} ({100 * mean_of(found, datasets, m, 'rate'):.0f} % asked)" if m in asking else m, *told)
        )
    return Table(
        "Top-1 accuracy, per cent, mean over the orders; bold: the best without labels",
        ("method", *(short(d) for d in datasets)),
        tuple(rows),
    )


def short(name: str) -> str:
    for long, instead in SHORTER.items():
        name = name.replace(long, instead)
    return name.removeprefix("pacs/")


def beside(found: Mapping[Any, Any], datasets: list[str], methods: list[str]) -> Table:
    """Means over the sets of the other measures."""
    shown = [
        MEASURES[name]
        for name in (
            "worst_tenth",
            "per_class",
            "top5",
            "ece",
            "adaptive_ece",
            "brier",
            "log_loss",
            "rate",
            "ms_p50",
            "adapt_ms",
            "peak_mem_mb",
        )
    ]
    rows = tuple(
        (m, *(measure.text(mean_of(found, datasets, m, measure.name)) for measure in shown)) for m in methods
    )
    notes = (
        "Times of runs side by side on one GPU: who is slower than whom, not what one image takes alone "
        "([speed](../speed.md) has that).",
    )
    return Table("Mean over the sets", ("method", *(m.heading for m in shown)), rows, notes)


def printed_beside(found: Mapping[Any, Any], methods: list[str]) -> Table:
    """Other people's numbers on sets of the same name, in columns of their own."""
    here = {d: name for d, name in NAMED.items() if (d, BASELINE) in found}
    rows = []
    for m in methods:
        theirs = {d: published_accuracy(m, name) for d, name in here.items()}
        if any(value is not None for value in theirs.values()):
            pairs = [
                (f"{100 * found[d, m]['measures']['top1']:.1f}", "" if value is None else f"*{value:.2f}*")
                for d, value in theirs.items()
            ]
            rows.append((m, *(cell for pair in pairs for cell in pair)))
    heads = [head for d in here for head in (short(d), "*published*")]
    notes = (
        "*Published*: ViT-B/16 on the whole test set, printed in the TAPS paper: another model, more images.",
    )
    return Table("Top-1, per cent: ours, and the printed number", ("method", *heads), tuple(rows), notes)


if __name__ == "__main__":
    given = options()
    main(lambda: {"reduce": reduce, "run": run, "page": page}[given.what](given))
