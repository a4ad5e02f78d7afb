"""What the recipes for the paper's tables share: arguments, which methods can be run, running, reporting."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taps.errors import TapsError
from taps.methods.registry import find_method
from taps.methods.registry import settings as default_settings
from taps.model.embedded import embedded_prompts
from taps.model.prompts.choose import SOURCE_FILE
from taps.model.prompts.families import FAMILIES
from taps.study.evaluate.evaluate import Outcome, evaluate_jobs
from taps.study.evaluate.jobs import Job, ModelSpec, StreamSpec
from taps.study.evaluate.options import Execution
from taps.study.evaluate.plan import make_jobs, open_streams, with_baselines
from taps.study.evaluate.pool import Watch
from taps.study.report.pages import write_report

POCKET = (
    "caltech101-test.zip",
    "imagenette-val.zip",
    "pacs.zip/photo",
    "pacs.zip/art_painting",
    "pacs.zip/cartoon",
    "pacs.zip/sketch",
)
Entry = str | tuple[str, str, Mapping[str, Any]]


def arguments(text: str, out: str) -> argparse.ArgumentParser:
    """The options that all tables have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=("paper", "pocket"), required=True)
    parser.add_argument("--root", type=Path, help="paper: folder that holds the named data sets")
    parser.add_argument("--data", type=Path, help="pocket: folder that holds the zips")
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--model", help="ViT-B-16 (paper) and pocket unless given")
    parser.add_argument("--pretrained", help="openai for ViT-B-16 unless given")
    parser.add_argument("--prompts", help="trained prompts, or a folder of them with one a family")
    parser.add_argument("--source", help="source statistics made by `taps stats`")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--limit", type=int, help="only the first so many images of each order")
    parser.add_argument("--views", type=int, help="views of an image, 64 unless given")
    parser.add_argument("--fraction", type=float, help="share of the views that is kept, 0.1 unless given")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--no-plots", dest="plots", action="store_false")
    return parser


def model_of(args: argparse.Namespace) -> ModelSpec:
    return ModelSpec(args.model or ("ViT-B-16" if args.scale == "paper" else "pocket"), args.pretrained)


def seeds_of(args: argparse.Namespace) -> list[int]:
    return [int(seed) for seed in args.seeds.split(",")]


def has_family(model: ModelSpec, prompts: str | None, family: str) -> bool:
    """Whether trained prompts of a family are given, or come with the package."""
    if prompts is not None:
        return (Path(prompts) / family).is_dir() or family in Path(prompts).name
    return embedded_prompts(model.name, family) is not None


def possible(entries: Sequence[Entry], model: ModelSpec, args: argparse.Namespace) -> list[Entry]:
    """The methods that have the prompts and statistics they need; says which are left out, and why."""
    kept: list[Entry] = []
    for entry in entries:
        label, method, settings = (entry, entry, {}) if isinstance(entry, str) else entry
        family = find_method(method).prompts
        values = {**default_settings(method), **settings}
        aligned = values.get("weight_coarse") or values.get("weight_fine")
        if family in FAMILIES and not has_family(model, args.prompts, str(family)):
            print(f"left out: {label} (no trained {family} prompts for {model.name})", file=sys.stderr)
        elif aligned and not args.source and not has_source(model, args.prompts):
            print(f"left out: {label} (no source statistics for {model.name})", file=sys.stderr)
        else:
            kept.append(entry)
    return kept


def plan_table(
    args: argparse.Namespace, streams: Sequence[StreamSpec], entries: Sequence[Entry]
) -> tuple[list[Job], dict[str, int]]:
    """The runs of one table, baselines included, and the images of each stream."""
    model = model_of(args)
    opened = open_streams(streams)
    baselines = with_baselines([], prompts=has_family(model, args.prompts, "maple"))
    wanted = possible([*baselines, *(e for e in entries if e not in baselines)], model, args)
    jobs = make_jobs(
        [stream for stream, _ in opened],
        model,
        wanted,
        seeds_of(args),
        {"source": args.source, "views": args.views, "fraction": args.fraction},
        prompts=args.prompts,
        preset="auto" if args.scale == "paper" else None,
        limit=args.limit,
    )
    return jobs, {stream.name: len(dataset) for stream, dataset in opened}


def printed(left: Sequence[tuple[Job, int]]) -> Watch:
    """A line for every run that ends."""
    began, ended = time.time(), [0]

    def watch(what: str, index: int, value: Any) -> None:
        if what in ("start", "progress"):
            return
        ended[0] += 1
        job = left[index][0]
        told = f"{100 * value['top1']:.2f} %, {value['ms_p50']:.1f} ms" if what == "done" else value or what
        spent = time.time() - began
        print(
            f"[{ended[0]}/{len(left)} {spent:.0f} s] {job.stream.name} {job.title} seed {job.seed}: {told}",
            flush=True,
        )

    return watch


def run_table(args: argparse.Namespace, streams: Sequence[StreamSpec], entries: Sequence[Entry]) -> Outcome:
    """Run one table and write its report."""
    jobs, lengths = plan_table(args, streams, entries)
    outcome = evaluate_jobs(
        jobs,
        args.out,
        Execution(jobs=args.jobs, device=args.device, resume=args.resume),
        lengths=lengths,
        watcher=printed,
    )
    for path in write_report(args.out, plots=args.plots):
        if path.suffix != ".svg":
            print(path)
    return outcome


def has_source(model: ModelSpec, prompts: str | None) -> bool:
    """Whether source statistics come with the package for this model and its own prompts."""
    folder = embedded_prompts(model.name, "maple")
    return prompts is None and folder is not None and (folder / SOURCE_FILE).is_file()


def main(run: Any) -> None:
    """Call a recipe; a mistake of the user's is one sentence."""
    try:
        run()
    except TapsError as error:
        raise SystemExit(f"{Path(sys.argv[0]).name}: {error}") from None


def zips(args: argparse.Namespace, names: Sequence[str]) -> list[StreamSpec]:
    """Pocket-scale streams below --data."""
    if args.data is None:
        raise TapsError("The pocket scale needs --data, the folder that holds the zips.")
    return [StreamSpec(str(args.data / name)) for name in names]


def named(args: argparse.Namespace, names: Sequence[str]) -> list[StreamSpec]:
    """The paper's sets below --root."""
    if args.root is None:
        raise TapsError("The paper's scale needs --root, the folder that holds the data sets.")
    return [StreamSpec(name, str(args.root)) for name in names]


def clean_streams(args: argparse.Namespace, names: Sequence[str]) -> list[StreamSpec]:
    """The paper's sets, or at pocket scale those that stand for them."""
    return named(args, names) if args.scale == "paper" else zips(args, POCKET)
