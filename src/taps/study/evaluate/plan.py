"""The runs of an evaluation: every data set, method and seed, with their settings checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from taps.data import Dataset, find_set
from taps.data.corrupt import kinds_of
from taps.errors import SettingsError
from taps.learner.learner import check_seed
from taps.methods.registry import all_methods, find_method, method_settings
from taps.model.embedded import embedded_prompts
from taps.model.prompts.base import CONFIG_FILE, Prompts
from taps.model.prompts.choose import USUAL
from taps.model.prompts.texts import read_texts
from taps.registry import nearest
from taps.streams.sequence import make_stream
from taps.study.evaluate.jobs import Job, ModelSpec, StreamSpec, check_labels, slug
from taps.study.evaluate.options import Setup, check_distinct

Entry = str | tuple[str, str, Mapping[str, Any]]
"""A method by name; or (name in tables, method, settings) for variants of one method."""


def settings_for(method: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that this method has a setting for, checked against their ranges."""
    known = find_method(method).known
    taken = {name: value for name, value in values.items() if name in known and value is not None}
    if taken.get("order", "predict_first") != "predict_first":
        raise SettingsError("Tables need order=predict_first: an annotator's answer is no prediction.")
    found = method_settings(method, taken)
    return {name: getattr(found, name) for name in taken}


def check_values(methods: Sequence[str], values: Mapping[str, Any]) -> None:
    """Refuse a setting that none of the methods has: it is a misspelling."""
    known = set().union(*(find_method(method).known for method in methods))
    unknown = sorted(values.keys() - known)
    if unknown:
        raise SettingsError(
            f"None of {', '.join(methods)} has a setting {', '.join(unknown)}; "
            f"there are {', '.join(sorted(known))}.{nearest(unknown[0], known)}"
        )


def with_baselines(methods: Sequence[str], *, prompts: bool) -> list[str]:
    """The methods, and before them the baselines of every table."""
    # Without trained prompts, a baseline that is nothing but those would be zero-shot under another name.
    baselines = {name: each for name, each in all_methods().items() if each.baseline}
    wanted = [name for name, each in baselines.items() if prompts or each.prompts != "any"]
    return list(dict.fromkeys([*wanted, *methods]))


def has_prompts(model: ModelSpec, prompts: str | None) -> bool:
    """Whether trained prompts are given, or come with the package for this model."""
    if prompts is not None:
        return prompts != "hand"
    return embedded_prompts(model.name, USUAL) is not None


def prompts_for(method: str, prompts: str | None) -> str | None:
    """Which of the given prompts a method starts from; None for its own choice.

    Baselines that can do without (`view_ensemble`, `zero`) get none: in a table they show what views alone
    give. With prompts they are variants (`--set prompts=DIR`). `prompts` is "hand", a directory made by
    `taps train`, or a directory of such, one a family.
    """
    takes = find_method(method).prompts
    if prompts is None or takes in (None, "hand", "optional"):
        return None
    family = USUAL if takes == "any" else str(takes)
    if (Path(prompts) / CONFIG_FILE).is_file():
        return prompts if takes in ("any", Prompts.from_pretrained(prompts).kind) else None
    inside = Path(prompts) / family
    return str(inside) if inside.is_dir() else prompts


def open_streams(streams: Sequence[StreamSpec]) -> list[tuple[StreamSpec, Dataset]]:
    """Load every data set once, so that a missing or unlabelled one is refused before any run."""
    opened = []
    for stream in streams:
        dataset = stream.load()
        check_labels(dataset)
        make_stream(dataset, 0, order=stream.order)  # an order that this set cannot have is refused
        opened.append((replace(stream, name=stream.name or dataset.name + stream.suffix), dataset))
    _refuse_equal("data sets", [stream.name for stream, _ in opened])
    return opened


def _refuse_equal(what: str, names: Sequence[str]) -> None:
    """Refuse two names that give one folder, such as "a/b" and "a-b"."""
    folders = [slug(name) for name in names]
    twice = [name for name in names if folders.count(slug(name)) > 1]
    if twice:
        both = " and ".join(map(repr, dict.fromkeys(twice[:2])))
        raise SettingsError(f"Two {what} are called {both}; evaluate them into two folders.")


def published(method: str, stream: StreamSpec, name: str | None) -> dict[str, Any]:
    """Settings of a preset; under "auto" a data set that has none keeps the defaults."""
    from taps.methods.presets import DATASETS, preset

    if name == "auto":
        found = find_set(stream.dataset)
        name = found.id if found is not None and found.id in DATASETS else None
    return {} if name is None else preset(method, name)


def plan_evaluation(setup: Setup, methods: Sequence[Entry]) -> tuple[list[Job], dict[str, int]]:
    """All runs, seed by seed; and the number of images of each stream, by name."""
    if not setup.dataset:
        raise SettingsError("--dataset is missing: give names (`taps data list`) or paths of data sets.")
    names = [entry if isinstance(entry, str) else entry[1] for entry in methods]
    check_values(names, setup.settings)
    root = None if setup.root is None else str(setup.root)
    opened = open_streams(
        [
            StreamSpec(name, root, kind, severity, "", setup.outside, setup.order)
            for name in setup.dataset
            for kind in kinds_of(setup.corrupt)
            for severity in (setup.severity if kind else (3,))
        ]
    )
    texts = None if setup.texts is None else str(Path(setup.texts).expanduser().resolve())
    jobs = []
    for stream, dataset in opened:
        read_texts(texts, dataset.classes)  # refused before any run
        template = dataset.template if setup.template == "own" else setup.template
        jobs += make_jobs(
            [stream],
            ModelSpec(setup.model, setup.pretrained),
            methods,
            setup.seeds,
            setup.values | {"template": template, "texts": texts},
            prompts=setup.prompts,
            preset=setup.preset,
            limit=setup.limit,
            noise=setup.noise,
            delay=setup.delay,
        )
    jobs.sort(key=lambda job: setup.seeds.index(job.seed))
    return jobs, {stream.name: len(dataset) for stream, dataset in opened}


def make_jobs(
    streams: Sequence[StreamSpec],
    model: ModelSpec,
    methods: Sequence[Entry],
    seeds: Sequence[int],
    values: Mapping[str, Any],
    *,
    prompts: str | None = None,
    preset: str | None = None,
    **run: Any,
) -> list[Job]:
    """Every combination, seed by seed, so that an evaluation cut short has whole tables of fewer seeds.

    Args:
        streams: Named streams, from `open_streams`.
        model: The model.
        methods: What is compared.
        seeds: One run each.
        values: Settings; each method takes those it has.
        prompts: What methods with prompts start from; see `prompts_for`.
        preset: Published settings: a name of `taps.methods.presets`, or "auto" for the data set's own.
        run: Other fields of `Job`: limit, noise, delay.
    """
    if not methods or not seeds or not streams:
        raise SettingsError("An evaluation needs a data set, a method and a seed at least.")
    _refuse_equal("methods", [entry if isinstance(entry, str) else entry[0] for entry in methods])
    seeds = [check_seed(seed) for seed in seeds]
    check_distinct("seeds", seeds)
    jobs = []
    for seed, stream, entry in product(seeds, streams, methods):
        label, method, own = ("", entry, {}) if isinstance(entry, str) else entry
        given = {
            "prompts": prompts_for(method, prompts),
            **published(method, stream, preset),
            # An option that was not given must not undo a preset.
            **{name: value for name, value in values.items() if value is not None},
            **own,
        }
        settings = settings_for(method, given)
        jobs.append(Job(stream, model, method, seed, settings, label, **run))
    return jobs
