"""A named set below a data folder: looked at, and loaded if that gives right numbers."""

from __future__ import annotations

from pathlib import Path

from taps.data.dataset import Dataset
from taps.data.labelfolders import survey_folders
from taps.data.listed import read_entries, survey_entries
from taps.data.locate import find_roots
from taps.data.registry import NamedSet
from taps.data.sources import FolderSource
from taps.data.survey import Survey
from taps.errors import DataError


def load_named(named: NamedSet, root: Path, split: str = "test") -> Dataset:
    """Load a named set, or say in one sentence why that would give wrong numbers."""
    survey = survey_set(named, root, split)
    errors = [finding.text for finding in survey.findings if finding.level == "error"]
    if errors or survey.root is None or not survey.samples:
        more = f" ({len(errors) - 1} more problems: taps data check {named.id})" if len(errors) > 1 else ""
        raise DataError((errors or [f"{named.name}: no images were found."])[0] + more)
    return Dataset(
        named.name,
        survey.classes,
        tuple(survey.samples),
        FolderSource(survey.root),
        named.template,
        survey.skipped,
    )


def survey_set(named: NamedSet, root: Path, split: str = "test") -> Survey:
    """Look at a copy of a set without decoding an image."""
    survey = Survey()
    if not root.is_dir():
        survey.say("error", f"No folder {root} found: give the folder that holds the data sets.")
        return survey
    roots = find_roots(named, root, split)
    if named.kind in ("wnids", "numbers"):
        if named.id != "imagenet" and split != "test":
            survey.say("error", f"{named.name} has a test split only, not {split!r}.")
        elif not roots:
            survey.say("error", _no_folder(named, root))
        else:
            survey_folders(named, roots, survey)
        return survey
    try:
        entries = read_entries(named, roots, root, split)
    except DataError as error:
        survey.say("error", str(error))
        entries = []
    if not roots:
        survey.say("error", _no_folder(named, root))
    elif entries:
        survey_entries(named, entries, roots, survey)
    return survey


def _no_folder(named: NamedSet, root: Path) -> str:
    others = f" (or {', '.join(named.roots[1:])})" if len(named.roots) > 1 else ""
    return f"{named.name}: there is no folder {named.roots[0]}{others} below {root}."
