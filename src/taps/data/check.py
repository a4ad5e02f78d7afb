"""Checks that a copy of a named set is complete and labelled as published, or that one's own can be read."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from taps.data.load import load_dataset
from taps.data.sets import NamedSet, find_set, named_sets
from taps.data.survey import Finding, Survey, survey_set
from taps.errors import DataError, ImageError
from taps.registry import nearest


@dataclass(frozen=True)
class Check:
    """The result of a check.

    Attributes:
        root: The folder of the images; None if there is none.
        classes: Number of classes.
        images: Number of images that exist and are labelled rightly.
        expected: Number of images of a complete copy.
        findings: Worst first.
    """

    name: str
    root: Path | None
    classes: int
    images: int
    expected: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether results on this copy can be compared with published ones."""
        return all(finding.level == "note" for finding in self.findings)


def check_dataset(name: str, root: str | Path) -> Check:
    """Check the test split of a named set below `root`, without decoding its images."""
    named = find_set(name)
    if named is None:
        names = named_sets()
        raise DataError(f"Unknown data set {name!r}: the names are {', '.join(names)}.{nearest(name, names)}")
    survey = survey_set(named, Path(root).expanduser())
    if survey.root is not None:
        _check_images(named, survey, survey.root)
    order = {"error": 0, "wrong": 1, "note": 2}
    findings = tuple(sorted(survey.findings, key=lambda finding: order[finding.level]))
    return Check(named.name, survey.root, len(survey.classes), len(survey.samples), named.images, findings)


def check_folder(path: str | Path) -> Check:
    """Check a folder or zip of one's own, as `load_dataset` takes it, by reading every image in it."""
    dataset = load_dataset(path)
    survey = Survey()
    broken = []
    for index in range(len(dataset)):
        try:
            dataset.image(index)
        except (ImageError, DataError) as error:
            broken.append(str(error).removesuffix("."))
    survey.add_list("error", "Images that cannot be read", broken, most=3)
    counts = Counter(dataset.labels)
    few = [name for label, name in enumerate(dataset.classes) if counts[label] < 2]
    survey.add_list("note", "Classes with fewer than two images", few)
    if dataset.left_out:
        survey.add("note", f"Files that are no images, left out: {dataset.left_out}.", dataset.skipped)
    images = len(dataset) - len(broken)
    return Check(dataset.name, Path(path), len(dataset.classes), images, len(dataset), tuple(survey.findings))


def _check_images(named: NamedSet, survey: Survey, root: Path) -> None:
    images = len(survey.samples)
    text = f"{images:,} images can be used, {named.images:,} are expected."
    survey.add("wrong", text, abs(images - named.images))
    filled = {sample.label for sample in survey.samples}
    if filled:
        bare = [name for label, name in enumerate(survey.classes) if label not in filled]
        survey.add_list("wrong", "classes without a test image", bare)
    # What an interrupted copy leaves behind.
    empty = [sample.path for sample in survey.samples if os.path.getsize(root / sample.path) == 0]
    survey.add_list("wrong", "files of no bytes", empty, most=3)
