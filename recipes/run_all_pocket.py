"""Tables 1, 2 and 3 at pocket scale in one go, within a time limit.

    PYTHONPATH=src python3 recipes/run_all_pocket.py --data DIR --out OUT --jobs 12 --time-limit 280
    PYTHONPATH=src python3 recipes/run_all_pocket.py --out OUT --page docs/results/pocket-tables.md

Streams are run in rounds: the first images of every stream for all methods and seeds, then more of them.
A run goes on where its last round ended, and whatever is cut off by the limit is recorded. All methods on a
data set are compared on the images that all of them have finished; every table says how many these are.
The second form makes the page of results from a folder, finished or not. Needs no typer, rich or matplotlib.
"""

from __future__ import annotations

import argparse
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import table1
import table2
import table3
from provenance import made_by
from table_tools import main, plan_table, printed

from taps.study.evaluate.evaluate import evaluate_jobs, read_spec, run_folders
from taps.study.evaluate.jobs import Job, StreamSpec
from taps.study.evaluate.options import Execution
from taps.study.evaluate.results import read_results
from taps.study.report.table import markdown
from taps.study.report.tables import detail_table, difference_table, score_table

TABLES = {
    "table1": "Table 1 at pocket scale: TPT, and TPT that does not learn from the most uncertain images",
    "table2": "Table 2 at pocket scale: data sets the prompts were not trained on",
    "table3": "Table 3 at pocket scale: the source's classes under corruptions and filters, alignment on",
}
BEYOND = ("taps+", "zero_shot+")  # not in the paper; beside Table 2, for the same labels
SLOW = ("taps", "taps+", "promptalign", "cocoop+tpt", "maple+tpt", "tpt", "tpt_skip")
BASELINES = ("zero_shot", "source", "view_ensemble")
INTRO = """# The tables of the paper at pocket scale

{made}
The model comes with the package; settings are the defaults, and nothing is tuned on these sets. The pocket
model is small: the tables show how methods compare under one protocol, not what they reach with a large CLIP.
`recipes/table1.py`, `table2.py` and `table3.py` make the same tables with ViT-B-16 and the paper's sets where
these are at hand (`--scale paper`).

`source` is the trained MaPLe prompts, not adapted. `view_ensemble` is the mean of the confident views,
without any gradient. `taps+` and `zero_shot+` are not in the paper
([label efficiency](../label-efficiency.md)). `to zero_shot` is the mean of the paired differences. How to
read the rest: [Measure and compare](../measuring.md).
"""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder that holds the zips")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=280.0, help="seconds")
    parser.add_argument("--rounds", default="250,1000", help="images of each stream after each round")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--tables", default="1,2,3")
    parser.add_argument("--sets", default="", help="those whose names have one of these, separated by commas")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--pretrained")
    parser.add_argument("--prompts")
    parser.add_argument("--source")
    parser.add_argument("--views", type=int)
    parser.add_argument("--fraction", type=float, help="share of the views that is kept; with few views more")
    parser.add_argument("--device")
    parser.add_argument("--archive", type=Path, help="pack the results into this .tar.gz at the end")
    parser.add_argument(
        "--page", type=Path, help="write the page of results from what is in --out, and no more"
    )
    parser.add_argument("--note", default="", help="for the page: what is to be said of this run")
    parser.add_argument("--made", help="for the page: commit, day and hardware; those of now unless given")
    args = parser.parse_args()
    args.scale, args.root, args.limit = "pocket", None, None
    return args


def plan(args: argparse.Namespace) -> tuple[list[Job], dict[str, int]]:
    """All runs. Tables 1 and 2 share streams and baselines, so nothing is run twice."""
    wanted = args.tables.split(",")
    jobs: list[Job] = []
    lengths: dict[str, int] = {}
    chosen = {"1": table1.METHODS, "2": (*table2.METHODS, *BEYOND)}
    cross = [method for number, methods in chosen.items() if number in wanted for method in methods]
    for streams, methods in (
        (table2.streams, list(dict.fromkeys(cross))),
        (table3.streams, table3.methods(args) if "3" in wanted else []),
    ):
        chosen_streams = [each for each in streams(args) if is_chosen(each, args.sets)]
        if methods and chosen_streams:
            more, images = plan_table(args, chosen_streams, methods)
            jobs, lengths = jobs + more, lengths | images
    return jobs, lengths


def is_chosen(stream: StreamSpec, sets: str) -> bool:
    """Whether the name or the path of a stream has one of some words in it; without words, all have."""
    return any(word in f"{stream.name} {stream.dataset}" for word in sets.split(","))


def cost(job: Job) -> int:
    """Baselines first, for nothing can be said without them; then slow methods before fast ones.

    A slow one begun last would keep one process busy while the others wait.
    """
    if job.method in BASELINES:
        return -1
    return SLOW.index(job.method) if job.method in SLOW else len(SLOW)


def run_rounds(args: argparse.Namespace, deadline: float) -> None:
    jobs, lengths = plan(args)
    names = list(lengths)
    begun = {folder: read_spec(folder)["limit"] or 0 for folder in run_folders(args.out)}
    for place, limit in enumerate(int(number) for number in args.rounds.split(",")):
        if place and time.time() > deadline:  # the first round records what was wanted
            return
        # What was started with more images, when this was stopped, stays at as many.
        share = [
            replace(job, limit=min(max(limit, begun.get(job.folder(args.out), 0)), lengths[job.stream.name]))
            for job in jobs
        ]
        # First whole tables of fewer seeds, should time run out; then whole data sets, for only images that
        # all methods have finished count.
        share.sort(key=lambda job: (job.seed if place == 0 else names.index(job.stream.name), cost(job)))
        print(f"== the first {limit:,} images of each stream, {len(share)} runs", flush=True)
        outcome = evaluate_jobs(
            share,
            args.out,
            Execution(args.jobs, args.device, minutes=(deadline - time.time()) / 60, resume=True),
            lengths=lengths,
            watcher=printed,
        )
        print(f"== {len(outcome.unfinished)} of {len(share)} runs unfinished", flush=True)


def make_page(out: Path, note: str = "", made: str | None = None) -> str:
    """The page of results from whatever is finished."""
    results = read_results(out)
    shift = [name for name in results.datasets if name.startswith("tiny-imagenet/")]
    cross = [name for name in results.datasets if name not in shift]
    choice = {
        "table1": ((*BASELINES, *table1.METHODS), cross),
        "table2": ((*BASELINES, *table2.METHODS, *BEYOND), cross),
        "table3": (results.methods, shift),
    }
    intro = INTRO.format(made=made_by("recipes/run_all_pocket.py", made))
    parts = [intro, f"{note}\n"] if note else [intro]
    for table, (methods, datasets) in choice.items():
        part = results.only(methods, datasets)
        if not part.results:
            continue
        parts.append(f"## {TABLES[table]}\n")
        tables = [score_table(part), difference_table(part), detail_table(part)]
        parts += [markdown(made) for made in tables if made.rows]
        parts += [f"- {sentence}" for sentence in part.missing()]
    return "\n".join(parts)


def pack(out: Path, archive: Path) -> None:
    """Everything a report needs; the learners' states stay behind."""

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if any(part == "state" for part in Path(member.name).parts) else member

    with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
        tar.add(out, arcname=out.name, filter=kept)
    print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB")


def run() -> None:
    began = time.time()
    args = options()
    if args.page is not None:
        args.page.write_text(make_page(args.out, args.note, args.made), encoding="utf-8")
        print(args.page)
        return
    run_rounds(args, began + args.time_limit)
    page = make_page(args.out)
    (args.out / "results.md").write_text(page, encoding="utf-8")
    print(page)
    if args.archive is not None:
        pack(args.out, args.archive)
    print(f"{time.time() - began:.0f} s in all")


if __name__ == "__main__":
    main(run)
