"""What runs need and have not: trained prompts and source statistics, found without loading a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from taps.errors import TapsError
from taps.files import read_tensors_meta
from taps.methods.registry import find_method
from taps.methods.registry import settings as default_settings
from taps.model.clip.config import architectures, read_config
from taps.model.clip.find import plain_name
from taps.model.embedded import embedded, embedded_prompts
from taps.model.prompts.choose import SOURCE_FILE, USUAL
from taps.model.prompts.families import FAMILIES
from taps.study.evaluate.jobs import Job, open_dataset


def lacking(jobs: Iterable[Job]) -> list[tuple[Job, str]]:
    """The runs that cannot begin, each with what it has not and the command that makes it."""
    found, known = [], dict[tuple[Any, ...], str | None]()
    for job in jobs:
        key = (job.stream, job.model, job.method, repr(sorted(job.settings.items())))
        if key not in known:
            known[key] = _lacks_prompts(job) or _lacks_statistics(job)
        if (why := known[key]) is not None:
            found.append((job, why))
    return found


def sentences(lack: Sequence[tuple[Job, str]]) -> list[str]:
    """One for each method and what it has not, over all sets and seeds."""
    return list(dict.fromkeys(f"{job.title} cannot run: {why}" for job, why in lack))


def _values(job: Job) -> dict[str, Any]:
    return {**default_settings(job.method), **job.settings}


def _lacks_prompts(job: Job) -> str | None:
    family = find_method(job.method).prompts
    if family is None or family not in FAMILIES or _values(job).get("prompts"):
        return None
    if embedded_prompts(job.model.name, family) is not None:
        return None
    return (
        f"there are no trained {family} prompts for {job.model.name}; make them with `taps train {family} "
        f"--model {job.model.name} --data SOURCE_SET --out PROMPTS/{family}` and give --prompts PROMPTS."
    )


def _lacks_statistics(job: Job) -> str | None:
    values = _values(job)
    labelled = values.get("weight_fine") and values.get("align_labelled") == "class"
    if not (values.get("weight_coarse") or values.get("weight_fine")):
        return None
    printed = values["align"] == "paper"
    make = f"`taps stats --model {job.model.name} --data SOURCE_SET"
    make += f"{' --per-class' if labelled else ''}{' --layers all' if printed else ''} --out STATS`"
    ask = f"make them with {make} and give --source STATS."
    source = values.get("source") or _shipped(job)
    if source is None or not isinstance(source, str | Path):
        return None if source is not None else f"there are no source statistics for {job.model.name}; {ask}"
    try:
        meta = read_tensors_meta(Path(source))
    except (OSError, TapsError) as error:
        return f"{error}; {ask}"
    blocks = set(values["align_layers"] or range(_depth(job.model.name))) if printed else set()
    if blocks - set(meta["layers"]):
        return f"the statistics of {source} hold blocks {meta['layers']} alone; {ask}"
    if labelled:
        have = {name.casefold() for name in meta["classes"]}
        classes = open_dataset(job.stream).classes
        missing = [name for name in classes if name.casefold() not in have]
        if missing:
            return f"the statistics of {source} lack {len(missing)} of {len(classes)} classes; {ask}"
    return None


def _shipped(job: Job) -> Path | None:
    folder = embedded_prompts(job.model.name, USUAL)
    given = job.settings.get("prompts") is not None
    return None if given or folder is None or not (folder / SOURCE_FILE).is_file() else folder / SOURCE_FILE


def _depth(model: str) -> int:
    """The vision blocks of a model, as far as its name tells; 0 where it takes a file to know."""
    if model == "pocket":
        return read_config(embedded("pocket.json")).vision_layers
    return int(architectures().get(plain_name(model), {}).get("vision_layers", 0))
