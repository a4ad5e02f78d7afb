"""On which sets the paper's parts are run, what of all that is there, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from taps.data.sample import bundled_sample
from taps.errors import TapsError
from taps.learner import Learner
from taps.model.clip import Clip
from taps.model.embedded import embedded, embedded_prompts
from taps.study.evaluate.jobs import Job, ModelSpec, StreamSpec, open_dataset
from taps.study.evaluate.needs import lacking, sentences
from taps.study.evaluate.plan import make_jobs, open_streams
from taps.study.paper.parts import CLEAN, PARTS, SHIFTED, TAPS, Part

POCKET = "pocket"
ZIPS = (
    *("caltech101-test.zip", "imagenette-val.zip"),
    *(f"pacs.zip/{domain}" for domain in ("photo", "art_painting", "cartoon", "sketch")),
)
SHIFTED_ZIP = "tiny-imagenet-val.zip"
CORRUPTIONS = ("gaussian_noise", "contrast", "cartoon", "sketch")
ALIGNED = {"weight_coarse": 1.0, "weight_fine": 1.0}
FROZEN = ("zero_shot", "source", "view_ensemble", "coop", "cocoop", "proda")
QUICK = {"limit": 12, "views": 8, "fraction": 0.25}


@dataclass(frozen=True)
class PaperOptions:
    """What the paper is repeated with.

    Attributes:
        model: pocket (the bundled images, or zips below --root), or ViT-B-16 (the paper's sets, presets).
        pretrained: Weights for an architecture: openai unless given.
        root: Folder that holds the sets.
        prompts: Folder of trained prompts, one a family: maple, coop, cocoop, proda.
        source: Source statistics, made by `taps stats --per-class --layers all`.
        seeds: One order of every set each.
        limit: Only the first N images of each order.
        views: Views of an image, 64 unless given.
        quick: Few images, few views, one order: every row, but no result.
    """

    model: str = POCKET
    pretrained: str | None = None
    root: Path | None = field(default=None, metadata={"envvar": "TAPS_DATA"})
    prompts: str | None = None
    source: str | None = None
    seeds: tuple[int, ...] = (1, 2, 3)
    limit: int | None = field(default=None, metadata={"min": 1})
    views: int | None = field(default=None, metadata={"min": 1})
    quick: bool = field(default=False, metadata={"flags": ("--quick",)})

    @property
    def own_sets(self) -> bool:
        """Whether the sets are the paper's."""
        return self.model != POCKET

    @property
    def bundled(self) -> bool:
        return not self.own_sets and self.root is None


@dataclass(frozen=True)
class Plan:
    """The runs, and what is there and what is missing.

    Attributes:
        sets: Names of the streams that each part is run on.
        checked: What was looked for, and what was found of it or makes it.
    """

    jobs: list[Job]
    lengths: dict[str, int]
    sets: dict[str, list[str]]
    checked: list[tuple[str, str]]


def streams_of(options: PaperOptions, part: Part) -> list[StreamSpec]:
    """What a part is run on."""
    if options.own_sets:
        root = None if options.root is None else str(options.root)
        return [StreamSpec(name, root, name=name) for name in part.sets]
    kinds = CORRUPTIONS[:2] if options.quick else CORRUPTIONS
    if options.bundled:
        clean = [str(bundled_sample()), str(embedded("images/sign-digits-sample.zip"))]
        shifted = clean[0]
    else:
        clean, shifted = [f"{options.root}/{name}" for name in ZIPS], f"{options.root}/{SHIFTED_ZIP}"
    if part.kind == CLEAN:
        return [StreamSpec(path) for path in clean]
    stem = Path(shifted).stem
    return [StreamSpec(shifted, corrupt=kind, name=f"{stem}/{kind}") for kind in kinds]


def make_plan(options: PaperOptions, names: Sequence[str], source: str | None) -> Plan:
    """All runs of the parts, each once; sets that cannot be opened are left out, and said to be."""
    jobs: dict[Path, Job] = {}
    lengths: dict[str, int] = {}
    sets: dict[str, list[str]] = {}
    checked: dict[str, str] = {}
    for name in (each for each in names if each in PARTS):
        there = []
        for stream in streams_of(options, PARTS[name]):
            try:
                [(opened, dataset)] = open_streams([stream])
            except TapsError as error:
                checked[f"set {stream.name or stream.dataset}"] = f"missing: {error}"
                continue
            there.append(opened)
            lengths[opened.name] = len(dataset)
            checked[f"set {opened.name}"] = f"{len(dataset):,} images, {len(dataset.classes):,} classes"
        sets[name] = [stream.name for stream in there]
        made = jobs_of(options, PARTS[name], there, source) if there else []
        jobs |= {job.folder(Path()): job for job in made}
    wanted = sorted(jobs.values(), key=lambda job: job.seed)
    checked["weights"] = f"{options.model} {options.pretrained or ''}".strip()
    for family in ("maple", "coop", "cocoop", "proda"):  # without them a row below says what makes them
        given = None if options.prompts is None else Path(options.prompts) / family
        found = given if given is not None and given.is_dir() else embedded_prompts(options.model, family)
        checked[f"prompts {family}"] = str(found or "none")
    checked["statistics"] = source or "those that come with the prompts"
    for line in sentences(lacking(wanted)):
        row, _, why = line.partition(" cannot run: ")
        checked[f"row {row}"] = f"missing: {why}"
    return Plan(wanted, lengths, sets, list(checked.items()))


def jobs_of(options: PaperOptions, part: Part, there: list[StreamSpec], source: str | None) -> list[Job]:
    """The runs of a part; of an ablation CLIP, too, which its changes are seen beside."""
    aligned = {} if options.own_sets or part.kind != SHIFTED else ALIGNED
    rows = [*part.entries, *(() if "zero_shot" in part.labels else [("zero_shot", "zero_shot", {})])]
    small = QUICK if options.quick else {"limit": options.limit, "views": options.views}
    return make_jobs(
        there,
        ModelSpec(options.model, options.pretrained),
        [(label, how, {**(aligned if how == TAPS else {}), **own}) for label, how, own in rows],
        options.seeds[:1] if options.quick else options.seeds,
        {name: value for name, value in small.items() if name != "limit"} | {"source": source},
        prompts=options.prompts,
        preset="auto" if options.own_sets else None,
        limit=small["limit"],
    )


def expected_seconds(plan: Plan, clip: Clip, side_by_side: int) -> float:
    """From the time of one image of TAPS here; a frozen method takes about a tenth of it."""
    if not plan.jobs:
        return 0.0
    job = next((job for job in plan.jobs if job.method == TAPS), plan.jobs[0])
    dataset = open_dataset(job.stream)
    given = {name: value for name, value in job.settings.items() if name in ("views", "fraction")}
    learner = Learner(clip, dataset.classes, TAPS, allow_duplicates=True, **given)
    for index in (0, 1):  # the first waits for memory and caches
        began = time.perf_counter()
        learner.predict_one(dataset.image(index))
    once = time.perf_counter() - began
    shares = (job.length(plan.lengths) * (0.1 if job.method in FROZEN else 1.0) for job in plan.jobs)
    return once * sum(shares) / side_by_side


def bundled_statistics(clip: Clip, out: Path) -> str:
    """Statistics of all blocks and of each class of the bundled images, whose corruptions are the stream."""
    from taps.model.prompts.choose import vision_prompts
    from taps.study.training.stats import collect_stats, parse_layers

    path = out / "source.safetensors"
    if not path.is_file():
        images = open_dataset(StreamSpec(str(bundled_sample())))
        prompts = vision_prompts(clip, None)
        layers = parse_layers("all", clip)
        collect_stats(clip, prompts, images, layers=layers, per_class=True).save(path)
    return str(path)


def with_statistics(options: PaperOptions, names: Sequence[str], clip: Clip, out: Path) -> str | None:
    """The source statistics: given, or made of the bundled images where these are what is run on."""
    needed = any(name in PARTS and PARTS[name].kind == SHIFTED for name in names)
    if options.source is not None or not (options.bundled and needed):
        return options.source
    return bundled_statistics(clip, out)
