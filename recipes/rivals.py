"""Heads × asking rules: what the same answers are worth to other heads, and to ours (docs/results/rivals.md).

    PYTHONPATH=src python3 recipes/label.py encode --data DIR --out FEATURES --views 8 --limit 1000
    PYTHONPATH=src python3 recipes/rivals.py --features FEATURES --rows OUT/rivals.jsonl --dry
    PYTHONPATH=src python3 recipes/rivals.py --features FEATURES --rows OUT/rivals.jsonl --page docs

Every stream is run truly on stored features: one image after the other, prediction first, then the answer
where one is asked for. All methods get the same images in the same order and the same budget; a yes or no
takes its share of a question's time. `view_ensemble+` sees all views of an image, `zero_shot+` one; the other
heads are run on the mean feature of all views, and again on one. `--heads` and `--rules` name the rows and
columns of the table, `--budgets` the methods to run at 1, 2, 5, 10 and 20 %, `--kinds` those to run with
questions of every kind for the same time, `--cases` those to run with wrong answers and on a stream of one
class mostly. `--dry` says what is left, and about how long it takes.

Each row is written as it comes; a second call goes on where the first was stopped. A file of rows is of one
commit: at another, name a new file. `--page` writes the page, its figures as JSON and the picture of
docs/label-efficiency.md.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from label import CHOOSING, FILES, feature_file, load_once, read_rows
from rivals_measures import EQUAL_TIME, KINDS_ASKED, USUAL
from rivals_page import write_page

from taps.errors import DataError
from taps.learner import Learner
from taps.types import Answer

HEADS = (
    "view_ensemble+",
    "zero_shot+",
    "prolip",
    "class_means",
    "clap",
    "cross_modal",
    "gda",
    "linear_probe",
    "proker",
    "tip_adapter",
)
ACTIVE = {"bitta": "confidence", "eatta": "sensitivity"}  # each with the rule it was published with
RULES = ("random", "margin")
BUDGETS = (0.05, 0.2, 0.01, 0.1, 0.02)  # where time is short, the ends come first
CURVES = ("view_ensemble+", "prolip", "clap", "cross_modal", "class_means")
MOSTLY = "one class mostly"
CASES = ("20 % wrong", "40 % wrong", "two classes confused", MOSTLY)
WRONG = {"20 % wrong": 0.2, "40 % wrong": 0.4}  # share of the answers that is a class drawn at random
FIRST = 60  # images of a cold start
ONE_CLASS = 0.8  # share of the largest class in a stream of one class mostly,
SHORTEST = 50  # which has so many images at least; sets that have fewer are no part of that case
GUESS = 0.8  # seconds of a stream of 1000 images, before any was run
QUESTIONS = {  # what each method may be asked by margin, beside what it is asked without a setting
    "view_ensemble+": ("yes_no", "both"),
    "bitta": ("class",),
}
CODE = ("src", "recipes/rivals.py", "recipes/label.py")  # what a row depends on
OWN_VIEWS = {"view_ensemble+": True, "zero_shot+": False}  # ours: whether they see several views
KEY = ("set", "order", "method", "rule", "rate", "case", "views", "limit")
KIND = ("method", "rule", "rate", "case", "views")


def plans(sets: list[str], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every stream, what matters most first; the orders of one kind come together."""
    for kind in dict.fromkeys(kinds(given)):
        _, rule, rate, case, _ = kind
        beside = rate != USUAL or case or rule in KINDS_ASKED
        for order in range(given.curve_orders if beside else given.orders):
            for name in long_enough(sets, case, given):
                yield {
                    "set": name,
                    "order": order,
                    **dict(zip(KIND, kind, strict=True)),
                    "limit": given.limit,
                }


def long_enough(sets: list[str], case: str, given: argparse.Namespace) -> list[str]:
    """The sets that have the images a case needs."""
    if case != MOSTLY:
        return sets
    files = {name: feature_file(name, given.features, given.views) for name in sets}
    return [n for n, file in files.items() if mostly_one(np.load(file)["labels"], 0).size >= SHORTEST]


def kinds(given: argparse.Namespace) -> Iterator[tuple[str, str, float, str, int]]:
    """Method, rule, rate, case and views: heads by every rule, cases, budgets, then kinds of questions."""
    several, heads = given.views, given.heads

    def seen(method: str) -> int:
        return several if OWN_VIEWS.get(method, True) else 1

    for views in dict.fromkeys((several, 1)):
        yield "zero_shot", "", USUAL, "", views
        yield from (
            (m, "random", USUAL, "", views) for m in heads if OWN_VIEWS.get(m, views > 1) == (views > 1)
        )
    for rule in given.rules:
        yield from ((method, rule, USUAL, "", seen(method)) for method in heads)
    yield from ((method, ACTIVE[method], USUAL, "", several) for method in heads if method in ACTIVE)
    for case in CASES if given.cases else ():
        yield "zero_shot", "", USUAL, case, several
        yield from ((method, "margin", USUAL, case, seen(method)) for method in given.cases)
    for rate in BUDGETS:
        for method in given.budgets:
            yield from ((method, rule, rate, "", seen(method)) for rule in ("random", "margin"))
    for rate in EQUAL_TIME:
        for method in given.kinds:
            rules = "margin", *QUESTIONS.get(method, KINDS_ASKED)
            yield from ((method, rule, rate, "", seen(method)) for rule in rules)


def settings_of(job: dict[str, Any]) -> dict[str, Any]:
    """Of the method: the budget, the rule, and where it looks at several views, how many."""
    if not job["rule"]:
        return {}
    rule, kind = ("margin", {"questions": job["rule"]}) if job["rule"] in KINDS_ASKED else (job["rule"], {})
    asking = {"rate": job["rate"], "policy": "paced", "acquisition": rule, "explore": 0.0} | kind
    several = job["method"] == "view_ensemble+"
    return asking | ({"views": job["views"], "fraction": 0.5} if several else {})


def stream_of(labels: np.ndarray, job: dict[str, Any]) -> np.ndarray:
    """Places of the images in the order they come in."""
    if job["case"] == MOSTLY:
        return mostly_one(labels, job["order"])[: job["limit"]]
    return np.random.default_rng(job["order"]).permutation(len(labels))[: job["limit"]]


def mostly_one(labels: np.ndarray, order: int) -> np.ndarray:
    """All images of the largest class, and as many others as leave it its share."""
    chance = np.random.default_rng([order, 2])
    largest = labels == np.bincount(labels).argmax()
    others = round(largest.sum() * (1 - ONE_CLASS) / ONE_CLASS)
    rest = chance.permutation(np.flatnonzero(~largest))[:others]
    return chance.permutation(np.concatenate([np.flatnonzero(largest), rest]))


def shown(features: np.ndarray, job: dict[str, Any]) -> torch.Tensor:
    """What a method is given of each image [N, V, d]: its views, or their mean to read as one."""
    views = F.normalize(torch.from_numpy(features[:, : job["views"]]).float(), dim=-1)
    if job["method"] == "view_ensemble+":
        return views
    return F.normalize(views.mean(dim=1, keepdim=True), dim=-1)


def answer_of(label: int, case: str, largest: np.ndarray, classes: int, chance: np.random.Generator) -> int:
    """What the annotator says: the truth, a class drawn at random, or either of the two largest classes."""
    if chance.random() < WRONG.get(case, 0.0):
        return int(chance.integers(classes))
    if case == "two classes confused" and label in largest:
        return int(chance.choice(largest))
    return label


def run_stream(job: dict[str, Any], file: str, model: str) -> dict[str, Any]:
    """One stream, and all of it predicted again at its end, when nothing is learned any more."""
    torch.set_num_threads(1)
    held = np.load(file)
    places = stream_of(held["labels"], job)
    features = shown(held["features"][places], job)
    labels, classes = held["labels"][places], held["classes"].tolist()
    counts = np.bincount(labels, minlength=len(classes))
    settings = settings_of(job)
    learner = Learner(load_once(model, "cpu"), classes, job["method"], seed=job["order"], **settings)
    chance = np.random.default_rng([job["order"], 1, zlib.crc32(job["set"].encode())])  # each set errs anew
    right, wrong_asked, items = [], [], []
    began = time.process_time()
    for id, (seen, label) in enumerate(zip(features, labels.tolist(), strict=True)):
        output = learner.method.predict(torch.empty(0), seen)
        probs = output.probs.double().numpy()
        decision, question = learner.desk.decide(
            probs, output.entropy if output.score is None else output.score
        )
        said = int(probs.argmax())
        right.append(said == label)
        items.append(output.item)
        if decision.ask and output.item is not None:
            wrong_asked.append(said != label)
            told = answer_of(label, job["case"], np.argsort(-counts)[:2], len(classes), chance)
            no = question == "yes_no" and said != told
            learner.method.learn_answer(id, Answer(no=(said,)) if no else Answer(told), output.item)
    seconds = time.process_time() - began
    kinds = learner.desk.questions.kinds
    return {
        "questions": kinds[0] if len(kinds) == 1 else "both",
        "images": len(right),
        "classes": len(classes),
        "largest": 100 * float(counts.max() / len(right)),
        "accuracy": 100 * float(np.mean(right)),
        "first": 100 * float(np.mean(right[:FIRST])),
        "last_quarter": 100 * float(np.mean(right[-(len(right) // 4) :])),
        "again": 100 * accuracy_again(learner, features, labels, items),
        "asked": learner.asked,
        "asked_wrong": 100 * float(np.mean(wrong_asked)) if wrong_asked else None,
        "annotator_seconds": learner.desk.questions.spent,
        "milliseconds": 1000 * seconds / len(right),
        "seconds": time.process_time() - began,
    }


def accuracy_again(learner: Learner, features: torch.Tensor, labels: np.ndarray, items: list[Any]) -> float:
    """Accuracy on the whole stream with all that was learned in it; images with an answer are part of it."""
    right = []
    for seen, label, item in zip(features, labels.tolist(), items, strict=True):
        said = None if item is None else learner.method.predict_kept(item)
        probs = learner.method.predict(torch.empty(0), seen).probs.numpy() if said is None else said
        right.append(int(probs.argmax()) == label)
    return float(np.mean(right))


def key(row: dict[str, Any]) -> str:
    return json.dumps([row[name] for name in KEY])


def jobs_left(given: argparse.Namespace, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every plan that has no row yet, and whose features are there."""
    sets = [name for name in given.sets if feature_file(name, given.features, given.views).exists()]
    if not sets:
        raise DataError(
            f"{given.features} holds features of no set with {given.views} views; run `label.py encode`."
        )
    done = {key(row) for row in rows}
    return [job for job in plans(sets, given) if key(job) not in done]


def forecast(jobs: list[dict[str, Any]], rows: list[dict[str, Any]], workers: int) -> str:
    """How many streams are left, and about how long they take: each as those of its method so far did."""
    taken: dict[str, list[float]] = {}
    for row in rows:
        taken.setdefault(row["method"], []).append(row["seconds"])
    known = [seconds for each in taken.values() for seconds in each] or [GUESS]
    total = sum(float(np.mean(taken.get(job["method"], known))) for job in jobs)
    return f"{len(jobs)} streams to run, about {total / 60 / workers:.0f} minutes on {workers} idle core(s)"


def run_all(given: argparse.Namespace) -> int:
    """Run every plan that has no row yet; none begins after `--seconds`. Returns how many were run."""
    rows, commit = read_rows(given.rows), commit_of_code()
    jobs = jobs_left(given, rows)
    print(forecast(jobs, rows, given.jobs), flush=True)
    if given.dry:
        return 0
    if others := {row["commit"] for row in rows} - {commit}:
        raise DataError(
            f"{given.rows} has streams of commit {', '.join(sorted(others))}, and the code is at {commit}; "
            f"name a new file with --rows."
        )
    given.rows.parent.mkdir(parents=True, exist_ok=True)
    began, count = time.monotonic(), 0
    with given.rows.open("a") as out:
        for job, row in results(jobs, given, began):
            out.write(json.dumps(job | row | {"commit": commit}) + "\n")
            out.flush()
            count += 1
    print(f"{count} of {len(jobs)} streams in {time.monotonic() - began:.0f} s")
    return count


def results(jobs: list[dict[str, Any]], given: argparse.Namespace, began: float) -> Iterator[tuple[Any, Any]]:
    """Each stream with its row as it comes: in this process, or in several."""
    if given.jobs == 1:
        yield from ((job, row) for job in jobs if (row := run_within(job, given, began)))
        return
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        started = {pool.submit(run_within, job, given, began): job for job in jobs}
        for future in as_completed(started):
            if row := future.result():
                yield started[future], row


def run_within(job: dict[str, Any], given: argparse.Namespace, began: float) -> dict[str, Any]:
    """Run a stream unless the time for all of them is over."""
    if time.monotonic() - began > given.seconds:
        return {}
    return run_stream(job, str(feature_file(job["set"], given.features, given.views)), given.model)


def commit_of_code() -> str:
    """The last commit that changed what a row depends on."""
    root = Path(__file__).resolve().parent.parent

    def git(*words: str) -> str:
        asked = ["git", "-C", str(root), *words, "--", *CODE]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()

    changed = "-dirty" if git("status", "--porcelain") else ""
    return (git("log", "-1", "--format=%h") or "unknown") + changed


def origin(given: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Where the figures come from."""
    return {
        "commit": ", ".join(sorted({row["commit"] for row in rows})),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "hardware": f"CPU alone ({platform.machine()}), one thread for each stream",
        "command": command(given),
        "model": given.model,
        "views": given.views,
        "torch": torch.__version__.partition("+")[0],
        "python": sys.version.partition(" ")[0],
        "development_sets": list(CHOOSING),
    }


def command(given: argparse.Namespace) -> str:
    """The call, with the options that say which streams there are."""
    usual, words = parser(), ["recipes/rivals.py --features FEATURES --rows OUT/rivals.jsonl --page docs"]
    for name in ("sets", "orders", "curve_orders", "limit", "heads", "rules", "budgets", "kinds", "cases"):
        value = getattr(given, name)
        if value != usual.get_default(name):
            told = ",".join(value) if isinstance(value, list) else value
            words.append(f"--{name.replace('_', '-')} {told}")
    return " ".join(words)


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--features", type=Path, required=True, help="where `label.py encode` wrote to")
    made.add_argument("--rows", type=Path, required=True, help="file that each stream's row goes to")
    made.add_argument("--page", type=Path, help="docs: results/rivals.md, its .json and the figure go there")
    made.add_argument(
        "--dry", action="store_true", help="run nothing, say what is left; --page from the rows there are"
    )
    made.add_argument("--sets", type=names, default=list(FILES), help="these alone, separated by commas")
    made.add_argument("--orders", type=int, default=2)
    made.add_argument("--curve-orders", type=int, default=1, help="orders of the budgets and of the cases")
    made.add_argument("--limit", type=int, help="images of a stream at most")
    made.add_argument("--heads", type=names, default=[*HEADS, *ACTIVE], help="methods of the table")
    made.add_argument("--rules", type=names, default=list(RULES), help="asking rules of the table")
    made.add_argument("--budgets", type=names, default=list(CURVES), help="methods to run at 1 to 20 %%")
    made.add_argument("--kinds", type=names, default=list(QUESTIONS), help="methods to ask for yes or no too")
    made.add_argument("--cases", type=names, default=list(CURVES), help="methods to run in odd cases")
    made.add_argument("--views", type=int, default=8, help="that `label.py encode` stored")
    made.add_argument("--model", default="pocket")
    made.add_argument("--jobs", type=int, default=1)
    made.add_argument("--seconds", type=float, default=math.inf, help="begin no stream after these")
    return made


def main() -> None:
    given = parser().parse_args()
    run_all(given)
    if given.page:
        rows = [row for row in read_rows(given.rows) if row["order"] < given.orders]
        write_page(rows, origin(given, rows), given.page)


if __name__ == "__main__":
    main()
